"""Ctrl-C: one line, status 130, no half line in the output. A reader that has gone: nothing."""

import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.interrupts import console_program
from tests.support.command_lines import (
    ENVIRONMENT,
    TRACEBACK,
    drafter_train_args,
    generate_args,
    once_per_run,
    run_cli,
    train_args,
)

#: Seconds in which it has to end.
MOST = 1.0
WIDE = [
    f"--{side}-{name}"
    for side in ("encoder", "decoder")
    for name in ("embed-dim=256", "ffn-embed-dim=1024")
]


@pytest.fixture(scope="module")
def slow_model(corpus, tmp_path_factory):
    """So large that a long batch takes several seconds."""

    def build(folder):
        more = [*WIDE, "--decoder-layers", 4, "--max-update", 1]
        run_cli(train_args(corpus.data_dir, folder, *more))

    return once_per_run(tmp_path_factory, "slow_model", build) / "checkpoint_last.pt"


@pytest.mark.parametrize(
    "decoding, beam", [("greedy", 1), pytest.param("beam", 4, marks=pytest.mark.slow)]
)
def test_a_line_and_a_status(corpus, slow_model, tmp_path, decoding, beam):
    more = ["--decoding", decoding, "--beam", beam, "--num-workers", 1, "--batch-size", 32]
    more += ["--min-len", 900, "--max-len-b", 1000, "--results-path", tmp_path / "out"]
    program, *args = generate_args(corpus.data_dir, slow_model, *more)
    found = shutil.which(program, path=os.path.dirname(sys.executable))
    with open(tmp_path / "errors", "wb") as errors:
        running = subprocess.Popen(
            [found, *args],
            env=ENVIRONMENT,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_hear,
        )
        _wait_for(tmp_path / "errors", "loading model(s)", running)
        time.sleep(3)
        assert running.poll() is None, "it is too fast to be interrupted"
        begin = time.perf_counter()
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        status = running.wait(timeout=60)
        seconds = time.perf_counter() - begin
    told = (tmp_path / "errors").read_text("utf-8")
    assert status == 130 and told.count("Interrupted: the output is not complete.\n") == 1
    assert TRACEBACK not in told and "Logging error" not in told
    assert seconds < MOST
    written = (tmp_path / "out" / "generate-test.txt").read_text("utf-8")
    assert written == "" or written.endswith("\n")


def test_ctrl_c_during_imports_ends_a_program_without_a_word(tmp_path):
    found = shutil.which("specdec-generate", path=os.path.dirname(sys.executable))
    with open(tmp_path / "imports", "wb") as imports:
        running = subprocess.Popen(
            [sys.executable, "-X", "importtime", found, "--help"],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=imports,
            preexec_fn=_hear,
        )
        _wait_for(tmp_path / "imports", "torch._C", running)
        running.send_signal(signal.SIGINT)
        printed, _ = running.communicate(timeout=60)
    told = (tmp_path / "imports").read_text("utf-8").splitlines()
    assert running.returncode == 130 and printed == b""
    assert all(line.startswith("import time:") for line in told)


BEGUN = """\
import signal
from specdec_plugin.fairseq_compat.interrupts import console_program

@console_program
def main(argv):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

assert (signal.getsignal(signal.SIGINT) is not signal.default_int_handler) == {ours}
main()
"""


@pytest.mark.parametrize("name, ours", [("specdec-here", True), ("another", False)])
def test_only_imports_of_our_programs_end_so(tmp_path, name, ours):
    (tmp_path / name).write_text(BEGUN.format(ours=ours), "utf-8")
    program = [sys.executable, tmp_path / name]
    subprocess.run(program, env=ENVIRONMENT, preexec_fn=_hear, check=True)


def test_ctrl_c_ends_a_drafters_training_in_a_line(corpus, tiny_verifier, tmp_path):
    args = drafter_train_args(corpus.data_dir, tmp_path, tiny_verifier, "--max-update", 10**6)
    with open(tmp_path / "errors", "wb") as errors:
        running = subprocess.Popen(
            [
                shutil.which(args[0], path=os.path.dirname(sys.executable)),
                *args[1:],
                *"--log-interval 1 --log-format simple".split(),
            ],
            env=ENVIRONMENT,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_hear,
        )
        _wait_for(tmp_path / "errors", "num_updates=", running)
        os.killpg(running.pid, signal.SIGINT)
        status = running.wait(timeout=60)
    told = (tmp_path / "errors").read_text("utf-8")
    words = "Interrupted: the same command resumes from the last checkpoint, if there is one.\n"
    assert status == -signal.SIGINT and told.count(words) == 1 and TRACEBACK not in told


def _hear():
    """Ctrl-C is not ignored, as by what a shell starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_for(path: Path, words, running):
    while words not in path.read_text("utf-8"):
        assert running.poll() is None
        time.sleep(0.05)


#: Output goes through a buffer. From Python 3.14 on, the end of a process is followed by a warning
#: of a semaphore that joblib makes when it is imported.
QUIET = {"PYTHONUNBUFFERED": "", "PYTHONWARNINGS": "ignore:resource_tracker"}
#: A program that prints, and then may end otherwise.
PRINTING = """\
import sys
from specdec_plugin.fairseq_compat.interrupts import console_program

@console_program
def main(argv):
    sys.stdin.read()  # until nobody reads the output any more
    for number in range({lines}):
        print(number)
    {end}

main()
"""


def unread(command, input=b""):
    """A program whose output nobody reads: its status, and what it told."""
    with subprocess.Popen(
        command,
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        running.stdout.close()
        running.stdout = None
        _, told = running.communicate(input, timeout=240)
    return running.returncode, told.decode()


@pytest.mark.parametrize(
    "lines, end, status, told",
    [
        (100_000, "", 141, ""),
        (1, "", 0, ""),  # all of it is in a buffer until the program ends
        (0, "raise BrokenPipeError('another pipe')", 141, ""),
        (1, "raise SystemExit('A sentence.')", 1, "A sentence.\n"),
    ],
)
def test_a_reader_that_has_gone(lines, end, status, told):
    found = unread([sys.executable, "-c", PRINTING.format(lines=lines, end=end)])
    assert found[0] == status and found[1].endswith(told)
    assert TRACEBACK not in found[1] and "BrokenPipeError" not in found[1]


@pytest.mark.parametrize(
    "raised, why",
    [
        ("MemoryError('there is no room')", "there is no room"),
        ("MemoryError()", "MemoryError"),
        ("OSError(12, 'Cannot allocate memory')", "[Errno 12] Cannot allocate memory"),
        ("RuntimeError('std::bad_alloc')", "std::bad_alloc"),
        (
            "RuntimeError('[enforce fail] DefaultCPUAllocator: not enough memory\\nframes')",
            "[enforce fail] DefaultCPUAllocator: not enough memory",
        ),
    ],
)
def test_full_memory_ends_a_program_in_a_line(raised, why):
    program = PRINTING.format(lines=1, end=f"raise {raised}")
    found = run_cli(["python", "-c", program], check=False)
    assert found.returncode == 1 and TRACEBACK not in found.stderr
    assert found.stderr.splitlines()[-1] == (
        f"There was not enough memory ({why}): the output is not complete. Take less at once, such "
        "as by smaller batches, or let this process have more memory."
    )


READING = """
import torch
from fairseq.data.iterators import BufferedIterator
from specdec_plugin.fairseq_compat.interrupts import end_in_a_line

class Batches:
    def __len__(self):
        return 10**9

    def __iter__(self):
        while True:
            numbers = torch.arange(3000)
            yield [torch.stack([numbers] * 3) for _ in range(300)]

end_in_a_line()
batches = BufferedIterator({size}, Batches())
next(batches)
raise {error}
"""


@pytest.mark.parametrize("size", [3, 10**6])
@pytest.mark.parametrize("error", ["SystemExit('A sentence.')", "KeyError('A traceback.')"])
def test_an_error_while_a_thread_reads_ahead(size, error):
    """Python would end the thread inside of an operator, and thereby abort the process."""
    done = run_cli(["python", "-c", READING.format(size=size, error=error)], check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] in ("A sentence.", "KeyError: 'A traceback.'")


def test_another_pipe_that_is_broken():
    program = PRINTING.format(lines=1, end="raise BrokenPipeError('another pipe')")
    found = run_cli(["python", "-c", program], check=False)
    assert found.returncode == 1 and "BrokenPipeError: another pipe" in found.stderr


def test_fairseqs_programs_without_a_reader(corpus, tiny_verifier):
    program, *args = generate_args(corpus.data_dir, tiny_verifier)
    found = shutil.which("fairseq-interactive", path=os.path.dirname(sys.executable))
    text = "\n".join(4 * corpus.lines("train", "en"))  # more than the buffer of an output
    status, told = unread([found, *args], text.encode())
    assert status == 141 and TRACEBACK not in told and "BrokenPipeError" not in told


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
@pytest.mark.parametrize("lines", [1, 100_000])
def test_an_output_without_room(lines):
    program = PRINTING.format(lines=lines, end="")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], env={**ENVIRONMENT, **QUIET},
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "The output cannot be written (No space left on device), and is not complete. Make room."
    )


@pytest.mark.parametrize("kind", [PluginError, RuntimeError])
def test_statistics_are_told_before_an_error(kind):
    told = []

    class Generator:
        pass

    @console_program
    def main(argv):
        generator = Generator()
        weakref.finalize(generator, told.append, "statistics")
        raise kind("A sentence.")

    with pytest.raises(kind, match="A sentence"):
        try:
            main([])
        finally:
            told.append("error")
    assert told == ["statistics", "error"]
