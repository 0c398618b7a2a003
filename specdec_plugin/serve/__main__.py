"""``specdec-serve``: a server for translations, and a page to try a model on."""

import logging
import signal
import socket
from typing import Any, Optional, Sequence

from ..api import open_folder
from ..errors import PluginError
from ..fairseq_compat.interrupts import console_program
from ..folder import read_folder
from .command_line import build_parser, check_folder, default_decoders, limits_of

#: Connections that wait until the server takes them.
BACKLOG = 2048


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    limits = limits_of(options)
    try:
        import uvicorn

        from .app import PATIENCE, Server
        from .decoding import Decoder, offered
        from .stopping import StoppingServer
    except ImportError as error:
        raise PluginError(
            f"specdec-serve needs the package {error.name}. Install the extra serve: "
            "pip install 'specdec-plugin[serve]'."
        ) from error
    folder = read_folder(options.folder)
    check_folder(folder, options)
    for name in ("fairseq", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with listening(options.host, options.port) as listener:
        count = options.decoders
        if count is None:
            count = default_decoders(folder, options.device)
        decoders = [Decoder(open_folder(folder, options.device)) for _ in range(count)]
        methods = offered(folder, options.methods)
        for name in options.methods or []:
            decoders[0].check(name)
        for decoder in decoders:
            decoder.warm_up(methods[0].name)
        served = Server(decoders, methods, limits, options.batch_size)
        app = served.app()
        # uvicorn would believe each client of this machine the address that it gives itself.
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, proxy_headers=False
        )
        server = StoppingServer(config, served.is_decoding, PATIENCE)
        # uvicorn takes these signals only once it runs, which is after the line below.
        stop_at_signals(server)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"{options.folder} is served at http://{shown}:{port}/", flush=True)
        server.run([listener])
    server.tell_end()


def stop_at_signals(server: Any) -> None:
    """Let SIGTERM and Ctrl-C stop a server of uvicorn, which raises them again afterwards."""

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def listening(host: str, port: int) -> socket.socket:
    """A socket to which clients may connect; they wait until the server takes them.

    Raises:
        PluginError: the address is taken, or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise PluginError(
            f"--host {host} --port {port}: {str(error).rstrip('.')}. Give another address or port."
        ) from error


if __name__ == "__main__":
    main()
