"""data_scripts/emulate_arm.py: what it needs, and what it compares."""

import json
import subprocess
import sys

import emulate_arm
import pytest


def test_missing_programs_are_named_and_are_no_error(monkeypatch, capsys):
    have = {"apt-get", "dpkg"}
    monkeypatch.setattr("shutil.which", lambda name: name if name in have else None)
    emulate_arm.main([])
    printed = capsys.readouterr().out
    assert "skipped" in printed
    assert "`apt install g++-aarch64-linux-gnu qemu-user`" in printed


def test_packages_are_those_with_compiled_code():
    wanted = emulate_arm.compiled_packages()
    assert f"torch=={emulate_arm.TORCH}" in wanted
    names = [requirement.partition("==")[0] for requirement in wanted]
    assert {"numpy", "sentencepiece"} < set(names)
    assert not {"fairseq-fixed", "sacrebleu", "specdec-plugin"} & set(names)
    assert len(names) == len(set(names))


def test_a_program_that_fails_ends_the_script():
    with pytest.raises(SystemExit, match="failed with the status 3"):
        emulate_arm.run([sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.parametrize("theirs, same", [([5, 2], True), ([6, 2], False)])
def test_tokens_are_compared(monkeypatch, capsys, theirs, same):
    def printed(tokens, kernels):
        found = {"kernels": kernels, "accepted": len(tokens), "greedy": {"0": tokens}}
        return subprocess.CompletedProcess([], 0, json.dumps({**found, "specdec": {"0": [5, 2]}}))

    class Emulated:
        def run(self, *arguments, **options):
            return printed(theirs, "NEON")

    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: printed([5, 2], "AVX2"))
    assert emulate_arm.same_tokens(Emulated()) is same
    verdict = "identical tokens" if same else "the tokens differ"
    assert capsys.readouterr().out == f"NEON and AVX2: {verdict}\n"
