"""How specdec-serve does under load, beside one run of the same sentences in batches."""

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import specdec_plugin
from specdec_plugin.errors import PluginError
from specdec_plugin.folder import Folder, read_folder
from specdec_plugin.lab.bench.report import percentile
from specdec_plugin.textfiles import read_lines

DESCRIPTION = """\
Start specdec-serve, let many clients ask it for one sentence after the other, and stop it. Then
translate the same sentences in batches, in this process. Print errors, percentiles of the time to
an answer, and the server's throughput as a share of the batches'. Each answer is compared with
the translation of the batches."""

EXAMPLE = """\
example:
  python data_scripts/load_server.py checkpoints/pydocs-en-es --input test.en --seconds 60"""


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="load_server.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folder", help="of specdec-pack")
    add("--input", required=True, help="sentences, one on each line")
    add("--clients", type=int, default=64, help="default: %(default)s")
    add("--seconds", type=float, default=60, help="of asking (default: %(default)s)")
    add("--decoding", default="auto", help="of both (default: %(default)s)")
    add("--batch-size", type=int, default=32, help="of the server (default: %(default)s)")
    add("--run-batch-size", type=int, default=512, help="of the batches (default: %(default)s)")
    add("--output", help="file for the figures, as JSON")
    return parser


@dataclass
class Load:
    """What clients saw.

    Attributes:
        lines: what they ask for, in turn.
        answered: the number of a line, the seconds to its answer, and its translation.
        errors: what went wrong instead.
        seconds: in which they asked.
        metrics: of the server, by name, when they have asked.
    """

    lines: Sequence[str]
    answered: List[Tuple[int, float, str]] = field(default_factory=list)
    errors: List[str] = field(default_factory=list)
    seconds: float = 0.0
    metrics: Dict[str, float] = field(default_factory=dict)
    _next: int = 0

    def take(self) -> int:
        """The number of the next line."""
        self._next += 1
        return (self._next - 1) % len(self.lines)


class Connection:
    """HTTP/1.1 over one connection that stays open.

    It is written by hand, because clients share the processors with the server.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, request: str, content: Any = None) -> Tuple[int, bytes]:
        """The status and the body of an answer.

        Args:
            request: such as ``GET /metrics``.
            content: is sent as JSON.
        """
        body = b"" if content is None else json.dumps(content).encode()
        head = f"{request} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        told = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(told.split(" ", 2)[1])
        (length,) = re.findall(r"\r\ncontent-length: (\d+)\r\n", told)
        return status, await self._reader.readexactly(int(length))

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()


async def ask(port: int, load: Load, folder: Folder, options: argparse.Namespace) -> None:
    """Let the clients ask until the time is over."""
    begin = time.perf_counter()
    end = begin + options.seconds
    fixed = {"source": folder.source_lang, "target": folder.target_lang}
    fixed["method"] = options.decoding

    async def client() -> None:
        connection = Connection(port)
        try:
            await connection.open()
            while (since := time.perf_counter()) < end:
                number = load.take()
                asked = {"q": load.lines[number], **fixed}
                status, body = await connection.ask("POST /translate", asked)
                if status == 200:
                    text = json.loads(body)["translatedText"]
                    load.answered.append((number, time.perf_counter() - since, text))
                else:
                    load.errors.append(f"{status} {body.decode()}")
            connection.close()
        except (OSError, EOFError) as error:
            load.errors.append(repr(error))

    await asyncio.gather(*(client() for _ in range(options.clients)))
    load.seconds = time.perf_counter() - begin
    load.metrics = await metrics_of(port)


async def metrics_of(port: int) -> Dict[str, float]:
    """The server's own figures, by their names and labels.

    Raises:
        PluginError: it has ended.
    """
    connection = Connection(port)
    try:
        await connection.open()
        _, body = await connection.ask("GET /metrics")
    except (OSError, EOFError) as error:
        raise PluginError(
            "The server ended before its metrics were read. Its last lines tell the cause."
        ) from error
    connection.close()
    plain = (line.split() for line in body.decode().splitlines() if line[:1] not in ("#", ""))
    return {name: float(value) for name, value in plain}


def serve(options: argparse.Namespace, lines: Sequence[str], folder: Folder) -> Load:
    """The load of a server in a process of its own."""
    command = [sys.executable, "-m", "specdec_plugin.serve", options.folder, "--port", "0"]
    command += ["--methods", options.decoding, "--batch-size", str(options.batch_size)]
    command += ["--max-requests", "0", "--max-waiting", str(max(1000, 2 * options.clients))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    load = Load(lines)
    try:
        found = re.search(r":(\d+)/$", process.stdout.readline())
        if found is None:
            raise PluginError("The server did not start. Its last lines tell the cause.")
        asyncio.run(ask(int(found[1]), load, folder, options))
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait() != 0:
            load.errors.append(f"The server ended with status {process.returncode}.")
    return load


def batches(options: argparse.Namespace, lines: Sequence[str]) -> Tuple[float, List[Any]]:
    """Seconds of translating all lines in batches, and their hypotheses."""
    translator = specdec_plugin.load(options.folder, decoding=options.decoding)
    translator.translate(lines[: options.run_batch_size], options.run_batch_size)  # a warm-up
    begin = time.perf_counter()
    found = translator.translate(lines, options.run_batch_size)
    return time.perf_counter() - begin, found


def figures(load: Load, seconds: float, found: Sequence[Any]) -> Dict[str, Any]:
    """What is printed.

    Args:
        load: of the server.
        seconds: of the batches.
        found: hypotheses of all lines. Throughput is counted in their tokens, because clients may
            have asked for some lines more often than for others.
    """
    tokens = [len(each.tokens) for each in found]
    served = sum(tokens[number] for number, _, _ in load.answered) / load.seconds
    times = [1000 * seconds for _, seconds, _ in load.answered]
    batched = sum(tokens) / seconds
    return {
        "answers": len(load.answered),
        "errors": len(load.errors),
        "other than in batches": sum(
            text != found[number].text for number, _, text in load.answered
        ),
        "p50 ms": round(percentile(times, 50), 1),
        "p99 ms": round(percentile(times, 99), 1),
        "sentences a batch": round(
            load.metrics["specdec_batch_sentences_sum"]
            / load.metrics["specdec_batch_sentences_count"],
            1,
        ),
        "share of time in decoding": round(
            load.metrics["specdec_decoding_seconds_total"] / load.seconds, 3
        ),
        "sentences a second": round(len(load.answered) / load.seconds, 1),
        "tokens a second": round(served),
        "tokens a second in batches": round(batched),
        "share": round(served / batched, 3),
    }


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = get_parser().parse_args(argv)
    lines = [line.strip() for line in read_lines(options.input) if line.strip()]
    if not lines:
        raise PluginError("There is nothing to translate. Give a sentence a line.")
    folder = read_folder(options.folder)
    load = serve(options, lines, folder)
    if not load.answered:
        raise PluginError(f"The server answered nothing: {load.errors[:1]}. Give more --seconds.")
    told = figures(load, *batches(options, lines))
    for name, value in told.items():
        print(f"{name:27} {value:>12,}")
    for error in load.errors[:5]:
        print(error)
    if options.output is not None:
        settings = {key: value for key, value in vars(options).items() if key != "output"}
        text = json.dumps({"options": settings, "figures": told}, indent=2)
        Path(options.output).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
