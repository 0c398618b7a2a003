"""Stand-ins for Python programs, with which shell scripts run them in the fork server.

Each is a script that tells a socket what to run, waits, and ends with the program's exit code. The
program reads and writes the files of its stand-in. One program runs at a time, so that a script
must not pipe one into another.
"""

import contextlib
import json
import os
import socketserver
import sys
import tempfile
import threading
from pathlib import Path
from typing import Iterator

from .fork_server import ForkServer

#: -I and -S: neither the environment nor installed packages are looked at, which takes time.
SCRIPT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = {{"arguments": [{program!r}, *sys.argv[1:]], "environment": dict(os.environ)}}
    request.update(cwd=os.getcwd(), process=os.getpid())
    server.sendall(json.dumps(request).encode() + b"\\n")
    status = int(server.makefile().readline())
sys.exit(status if status >= 0 else 128 - status)
"""
#: Exit code of a program that took too long, as of ``timeout``.
LATE = 124
#: Which programs beside this interpreter have a stand-in.
PROGRAMS = ("fairseq-*", "specdec-*")


@contextlib.contextmanager
def stand_ins(programs: ForkServer, timeout: float = 240) -> Iterator[str]:
    """A folder of stand-ins, ``python`` among them, that work while it is there.

    Args:
        programs: what runs them.
        timeout: seconds after which a program is killed.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = json.loads(self.rfile.readline())
            files = [Path(f"/proc/{request['process']}/fd/{number}") for number in range(3)]
            arguments, environment = request["arguments"], request["environment"]
            status = programs.run_with(files, arguments, environment, request["cwd"], timeout)
            self.wfile.write(b"%d\n" % (LATE if status is None else status))

    with tempfile.TemporaryDirectory() as folder:
        address = os.path.join(folder, "socket")
        beside = Path(sys.executable).parent
        found = {path.name: path for pattern in PROGRAMS for path in beside.glob(pattern)}
        for name, path in {**found, "python": Path(sys.executable)}.items():
            script = Path(folder) / name
            text = SCRIPT.format(python=sys.executable, address=address, program=str(path))
            script.write_text(text, "utf-8")
            script.chmod(0o700)
        with socketserver.ThreadingUnixStreamServer(address, Handler) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield folder
            finally:
                server.shutdown()
