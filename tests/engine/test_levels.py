"""Levels of instructions: found before a library is loaded, and alike in what they decode."""

import contextlib
import json
import logging
import re
import subprocess
import sys

import pytest

from specdec_plugin.engine import native
from specdec_plugin.engine.native import build, levels, prebuilt
from specdec_plugin.errors import PluginError
from tests.support.command_lines import ENVIRONMENT, ROOT

#: As Linux tells of processors, shortened: a server's of 2014, of 2017, of 2019, of 2023.
HASWELL = "flags\t\t: fpu sse sse2 ssse3 fma cx16 sse4_2 movbe popcnt avx f16c bmi1 avx2 bmi2"
SKYLAKE = f"{HASWELL} avx512f avx512dq avx512cd avx512bw avx512vl"
CASCADE_LAKE = f"{SKYLAKE} avx512_vnni"
GENOA = f"{CASCADE_LAKE} avx512_bf16 avx512vbmi"
NEHALEM = "flags\t\t: fpu sse sse2 ssse3 cx16 sse4_1 sse4_2 popcnt"
NEOVERSE = "Features\t: fp asimd evtstrm aes crc32 atomics asimddp"
X86 = ["sse2", "avx2", "avx512", "avx512-vnni", "avx512-bf16"]


def cpuinfo(*processors):
    parts = [f"processor\t: {n}\nmodel\t\t: 1\n{text}\n" for n, text in enumerate(processors)]
    return "\n".join(parts)


@pytest.fixture
def processor(monkeypatch):
    """Pretends to be another one."""

    def be(text, machine="x86_64"):
        monkeypatch.setattr(levels, "cpuinfo", lambda: text)
        monkeypatch.setattr("platform.machine", lambda: machine)

    monkeypatch.delenv("SPECDEC_KERNELS", raising=False)
    return be


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Pretends that the plugin is from a wheel with libraries of these levels."""

    def have(*names):
        for level in levels.LEVELS:
            if level.name in names:
                (tmp_path / prebuilt._name(level)).write_text(level.name)
        return tmp_path

    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    monkeypatch.delenv("SPECDEC_SANITIZE", raising=False)
    return have


def names():
    return [level.name for level in levels.runnable()]


# What the processor has


@pytest.mark.parametrize(
    "text, count",
    [(NEHALEM, 1), (HASWELL, 2), (SKYLAKE, 3), (CASCADE_LAKE, 4), (GENOA, 5), ("", 1)],
)
def test_levels_of_a_processor(processor, text, count):
    processor(cpuinfo(text))
    assert names() == X86[:count]


def test_a_level_needs_all_of_its_instructions(processor):
    processor(cpuinfo(GENOA.replace("avx512bw ", "")))
    assert names() == X86[:2]
    processor(cpuinfo(GENOA.replace(" fma", "")))
    assert names() == X86[:1]


def test_the_least_of_all_cores_counts(processor):
    processor(cpuinfo(GENOA, HASWELL, GENOA))
    assert names() == X86[:2]


def test_other_families(processor):
    processor(cpuinfo(NEOVERSE), "aarch64")
    assert names() == ["neon"]
    processor(cpuinfo(GENOA), "aarch64")  # an emulator shows what it runs on
    assert names() == ["neon"]
    processor("isa: rv64gc", "riscv64")
    assert names() == []
    processor(cpuinfo(HASWELL), "AMD64")
    assert names() == X86[:2]


def test_systems_without_cpuinfo_ask_pytorch(processor, monkeypatch):
    processor(None)
    for told, count in (("DEFAULT", 1), ("AVX2", 2), ("AVX512", 3)):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda told=told: told)
        assert names() == X86[:count]
        best = levels.runnable()[-1]
        assert build.variants() == [best.flags]  # -march=native may be more than is known


@pytest.mark.skipif(levels.machine() != "x86_64", reason="x86 only")
def test_the_compiler_agrees_on_the_names(tmp_path):
    """Each level compiles to the code that its name promises, and uses the next one's nowhere."""
    source = tmp_path / "macros.cpp"
    source.write_text("")
    for position, level in enumerate(levels.of_machine("x86_64")):
        command = [build.find_compiler(), "-dM", "-E", *level.flags, str(source)]
        defined = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        macros = ["__AVX2__", "__AVX512F__", "__AVX512VNNI__", "__AVX512BF16__"]
        found = [f"#define {macro} 1" in defined for macro in macros]
        assert found == [True] * position + [False] * (4 - position)


# What is chosen


def test_the_best_library_of_a_wheel(processor, wheel):
    wheel(*X86)
    for text, name in ((GENOA, "avx512-bf16"), (HASWELL, "avx2"), (NEHALEM, "sse2")):
        processor(cpuinfo(text))
        assert prebuilt.find().path.read_text() == prebuilt.find().level.name == name


def test_a_library_that_is_missing(processor, wheel):
    wheel("sse2", "avx512-bf16", "neon")
    processor(cpuinfo(CASCADE_LAKE))
    assert prebuilt.find().level.name == "sse2"
    processor(cpuinfo(NEOVERSE), "aarch64")
    assert prebuilt.find().level.name == "neon"


def test_a_lower_level_can_be_forced(processor, wheel, monkeypatch):
    wheel("sse2", "avx2", "avx512-bf16")
    processor(cpuinfo(GENOA))
    monkeypatch.setenv("SPECDEC_KERNELS", "AVX2")
    assert prebuilt.find().level.name == "avx2"
    monkeypatch.setenv("SPECDEC_KERNELS", "avx512")  # the wheel has none: it is compiled
    assert prebuilt.find() is None
    assert build.variants() == [levels.LEVELS[2].flags]
    monkeypatch.setenv("SPECDEC_KERNELS", "native")
    assert prebuilt.find() is None
    assert build.variants()[0] == ["-march=native"]


def test_a_level_that_the_processor_lacks_is_refused(processor, monkeypatch):
    processor(cpuinfo(SKYLAKE))
    monkeypatch.setenv("SPECDEC_KERNELS", "avx512-bf16")
    with pytest.raises(PluginError, match=r"lacks avx512_bf16, avx512_vnni\. Give .*avx512, nat"):
        prebuilt.find()
    monkeypatch.setenv("SPECDEC_KERNELS", "neon")
    with pytest.raises(PluginError, match="lacks aarch64"):
        build.variants()
    monkeypatch.setenv("SPECDEC_KERNELS", "fast")
    with pytest.raises(PluginError, match="SPECDEC_KERNELS is fast, which is no level"):
        prebuilt.find()


def test_a_library_of_other_sources_is_left_alone(processor, wheel, monkeypatch, caplog):
    wheel(*X86)
    processor(cpuinfo(GENOA))
    monkeypatch.setattr(build, "source_digest", lambda: "others")
    with caplog.at_level(logging.INFO):
        assert prebuilt.find() is None
    assert "none of the compiled kernels" in caplog.text


def test_sanitizers_need_a_library_of_their_own(processor, wheel, monkeypatch):
    wheel(*X86)
    processor(cpuinfo(GENOA))
    monkeypatch.setenv("SPECDEC_SANITIZE", "1")
    assert prebuilt.find() is None


def test_the_library_that_is_loaded_is_identified(tmp_path, monkeypatch):
    """Packed weights of the compiled kernels are not for the wheel's, which could not be loaded."""
    files = {name: tmp_path / name for name in ("none.so", "one.so", "other.so")}
    files["none.so"].write_text("no library")
    for name in ("one.so", "other.so"):
        source = f'extern "C" int {name[:-3]}() {{ return 0; }}'
        command = [build.find_compiler(), *"-shared -fPIC -x c++ - -o".split(), str(files[name])]
        subprocess.run(command, input=source, text=True, check=True)
    level = levels.LEVELS[0]

    def identity(wheel, compiled):
        found = prebuilt.Library(files[wheel], level)
        monkeypatch.setattr(prebuilt, "find", lambda: found)
        monkeypatch.setattr(native, "compiled", lambda: contextlib.nullcontext(files[compiled]))
        return native._load().digest

    assert identity("none.so", "one.so") == identity("one.so", "other.so")
    assert identity("none.so", "other.so") == identity("other.so", "one.so")
    assert identity("none.so", "one.so") != identity("none.so", "other.so")


def test_a_library_that_cannot_be_loaded_is_compiled_instead(processor, wheel, monkeypatch, caplog):
    wheel(*X86)  # files that are no libraries
    real = levels.cpuinfo()
    processor(real, levels.machine())
    monkeypatch.setattr(native, "compiled", lambda: contextlib.nullcontext(None))
    with caplog.at_level(logging.INFO):
        assert native._load() is None
    if levels.machine() == "x86_64":
        assert "the wheel's kernels cannot be loaded" in caplog.text


# What is compiled


def test_a_family_without_levels(tmp_path):
    with pytest.raises(PluginError, match="no levels of kernels for riscv64; give one of aarch64"):
        prebuilt.compile_into(tmp_path, "riscv64", "c++")


def test_a_compiler_that_fails_is_named_with_its_errors(tmp_path):
    failing = tmp_path / "compiler"
    failing.write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    failing.chmod(0o755)
    with pytest.raises(PluginError, match=r"compile the kernels for neon[\s\S]*no such"):
        prebuilt.compile_into(tmp_path / "libraries", "aarch64", str(failing))
    assert list((tmp_path / "libraries").iterdir()) == []


@pytest.mark.skipif(
    levels.machine() != "x86_64" or build.sanitized(), reason="others have other versions"
)
def test_a_wheel_needs_glibc_2_28_and_the_library_of_gcc_8(tmp_path):
    """What auditwheel finds for manylinux_2_28, in the names of versions."""
    most = {b"GLIBC": (2, 28), b"GLIBCXX": (3, 4, 25), b"CXXABI": (1, 3, 11)}
    library = prebuilt._compile(tmp_path, levels.LEVELS[0], build.find_compiler()).read_bytes()
    found = re.findall(rb"\0(GLIBC|GLIBCXX|CXXABI)_([0-9.]+)(?=\0)", library)
    assert {name for name, _ in found} == set(most)
    wanted = [(name, tuple(map(int, version.split(b".")))) for name, version in found]
    assert [each for each in wanted if each[1] > most[each[0]]] == []


@pytest.mark.slow
def test_every_level_decodes_the_same_tokens(tmp_path):
    """Fifty sentences of the shipped model, by exact methods, on each level that runs here."""
    folder = tmp_path / "native" / "prebuilt"
    assert prebuilt.compile_into(folder, levels.machine(), build.find_compiler())
    code = (
        "import pathlib, sys; from specdec_plugin.engine.native import prebuilt; "
        "prebuilt.FOLDER = pathlib.Path(sys.argv[1]); "
        "from tests.support import fifty; fifty.main()"
    )
    found, kernels = {}, set()
    for name in names():
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)],
            env={**ENVIRONMENT, "SPECDEC_KERNELS": name, "CXX": "none", "PATH": ""},
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[name] = json.loads(done.stdout)
        kernels.add(found[name].pop("kernels"))
        assert found[name].pop("accepted") > 1.5, "hardly anything was drafted"
    assert len(kernels) == len(found)  # each ran kernels of its own
    (least, *_) = found.values()
    assert len(least["greedy"]) == 50
    assert least["greedy"] == least["specdec"]
    for name, tokens in found.items():
        assert tokens == least, name
