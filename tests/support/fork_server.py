"""Runs Python programs in copies of a process that has imported PyTorch and fairseq already.

Importing them takes most of the time of a tiny command line.  Each program still has a process of
its own: its own file descriptors, environment, memory and exit status.  The server starts no
threads, so that a copy of it is as good as a new process.  A copy ends without taking the modules
apart, because that writes to most of the pages that it shares with the server.
"""

import atexit
import functools
import gc
import importlib
import json
import logging
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

#: Imported before any program asks for it.  fairseq_cli.train is not: see LOGS_FIRST.
PRELOADED = (
    "matplotlib.figure",  # before fairseq, which makes it log
    "fairseq_cli.generate",
    "fairseq_cli.interactive",
    "fairseq_cli.preprocess",
    "fairseq.trainer",
    "fairseq.model_parallel.megatron_trainer",
    "sacrebleu",
    # PyTorch imports these with the first optimizer.
    "torch._dynamo",
    "torch.distributed.fsdp",
)
#: The program that sets up logging before fairseq does, so that what fairseq did has to be undone.
LOGS_FIRST = "fairseq-train"


class ForkServer:
    """A process to run programs in; it starts with the first program.

    Args:
        environment: the environment that the imports see.
    """

    def __init__(self, environment: Dict[str, str]) -> None:
        self._environment = environment
        self._lock = threading.Lock()

    @functools.cached_property
    def _process(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        arguments: Sequence[str],
        environment: Dict[str, str],
        cwd: Any = None,
        stdin: bytes = b"",
        timeout: float = 240,
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a program as :func:`subprocess.run` does.

        Args:
            arguments: the path of a Python program, or of this interpreter, and what follows it.
            environment: all of it, but the modules that are imported already do not see it.
            cwd: the program's working directory; by default this process's.
            stdin: what the program can read.
            timeout: seconds after which it is killed.

        Returns:
            the finished process with what it wrote; a negative exit code names a signal.

        Raises:
            subprocess.TimeoutExpired: the program took too long.
        """
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
            files[0].write_bytes(stdin)
            status = self.run_with(files, arguments, environment, cwd, timeout)
            output = [path.read_bytes() for path in files[1:]]
        if status is None:
            raise subprocess.TimeoutExpired(list(arguments), timeout, *output)
        return subprocess.CompletedProcess(list(arguments), status, *output)

    def run_with(
        self,
        files: Sequence[Path],
        arguments: Sequence[str],
        environment: Dict[str, str],
        cwd: Any = None,
        timeout: float = 240,
    ) -> Optional[int]:
        """Run a program that reads and writes these files; see :meth:`run`.

        Args:
            files: standard input, output and error; what is in the last two stays.

        Returns:
            the exit code, or None if the program took too long.
        """
        request = {
            "arguments": list(arguments),
            "environment": environment,
            "cwd": os.path.abspath(cwd or os.curdir),
            "files": [str(path) for path in files],
        }
        with self._lock:
            return self._ask(request, timeout)

    def _ask(self, request: Dict[str, Any], timeout: float) -> Any:
        """The exit code, or None if the program took too long."""
        server, late = self._process, threading.Event()
        assert server.stdin is not None and server.stdout is not None
        print(json.dumps(request), file=server.stdin, flush=True)
        child = int(server.stdout.readline())

        def kill() -> None:
            late.set()
            os.killpg(child, signal.SIGKILL)

        alarm = threading.Timer(timeout, kill)
        alarm.start()
        status = int(server.stdout.readline())
        alarm.cancel()
        return None if late.is_set() else status


def _serve() -> Dict[str, Any]:
    """Answer requests until there are no more; in each copy, return the request."""
    for name in PRELOADED:
        importlib.import_module(name)
    quick_hydra = importlib.import_module("tests.support.quick_hydra")  # which imports fairseq
    quick_hydra.install()
    quick_hydra.warm_up()
    assert threading.active_count() == 1
    # Else each copy's collections, the last of them above all, would write to most pages.
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            request: Dict[str, Any] = json.loads(line)
            return request
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def _become(request: Dict[str, Any]) -> None:
    """Run the program of the request in this process."""
    written = os.O_WRONLY | os.O_APPEND
    modes = (os.O_RDONLY, written, written)
    for number, (path, mode) in enumerate(zip(request["files"], modes, strict=True)):
        os.dup2(os.open(path, mode | os.O_CREAT, 0o600), number)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    program, *rest = request["arguments"]
    if os.path.basename(program) == LOGS_FIRST:
        logging.root.handlers.clear()
    if program != sys.executable:
        sys.argv = [program, *rest]
        runpy.run_path(program, run_name="__main__")
    elif rest[0] == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest[2:]]
        exec(rest[1], {"__name__": "__main__"})
    elif rest[0] == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = rest[1:]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(rest[0])))
        sys.argv = rest
        runpy.run_path(rest[0], run_name="__main__")


def _status(request: Dict[str, Any]) -> int:
    """Run the program of the request in this process; what it would end with by itself."""
    try:
        _become(request)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    return 0


def _end(status: int) -> None:
    """End this process as the interpreter does, but keep the modules; return if it cannot."""
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # the interpreter tells it, with a status of its own
    os._exit(status)


if __name__ == "__main__":
    _end(_status(_serve()))
