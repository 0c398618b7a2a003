"""Damage to files: of any bytes, of numbers and words in text, and of values in what is stored."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any, Callable, List

import torch

#: Stand for values that a file should not have there.
ODD: List[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, float("nan"), float("inf"), "",
    "\x00", "no", [], [[]], {}, {"a": 1},
]  # fmt: skip
#: The same for tensors: other types, axes, sizes and layouts.
ODD_TENSORS: List[Callable[[], Any]] = [
    lambda: torch.zeros(0),
    lambda: torch.zeros(()),
    lambda: torch.zeros(1, 1, 1),
    lambda: torch.full((9, 16), float("nan")),
    lambda: torch.zeros(16, 16, dtype=torch.bool),
    lambda: torch.zeros(40, 16, dtype=torch.complex64),
    lambda: torch.zeros(1).expand(1 << 20, 1 << 12),
    lambda: torch.eye(16).to_sparse(),
    lambda: torch.zeros(16, 16, dtype=torch.float64).t(),
    lambda: torch.zeros(3, 4, device="meta"),
]
#: In place of numbers in text.
NUMBERS = [b"-1", b"0", b"99999999999999999999999", b"1e999", b"NaN", b"", b"x", b"\xff", b"1.5"]


def damage(path: Path, random: Random) -> None:
    """Change a file in one of the ways that fit its kind."""
    ways = [_bytes, _bytes, _numbers]
    if path.suffix == ".pt":
        ways = [_bytes, _values, _values, _values]
    elif path.suffix in (".json", ".jsonl"):
        ways += [_json, _json]
    random.choice(ways)(path, random)


def _bytes(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(random.choice([1, 1, 2, 8])):
        begin = random.randrange(len(content) + 1)
        end = min(len(content), begin + random.choice([1, 1, 4, 64, 4096]))
        drawn = random.randbytes(end - begin)
        change = random.randrange(6)
        if change == 0:
            del content[begin:]
        elif change == 1:
            del content[begin:end]
        elif change == 2:
            content[begin:begin] = content[begin:end] or drawn
        elif change == 3:
            content[begin:end] = bytes(end - begin)
        else:
            content[begin:end] = drawn
    path.write_bytes(content)


def _numbers(path: Path, random: Random) -> None:
    content = path.read_bytes()
    found = list(re.finditer(rb"\d+|\|\|\||[ \n]", content))
    if found:
        one = random.choice(found)
        content = content[: one.start()] + random.choice(NUMBERS) + content[one.end() :]
    path.write_bytes(content)


def _json(path: Path, random: Random) -> None:
    lines = path.read_text("utf-8").splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = random.randrange(len(lines))
    lines[number] = json.dumps(_changed(json.loads(lines[number]), random))
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _values(path: Path, random: Random) -> None:
    state = torch.load(path, weights_only=True)
    torch.save(_changed(state, random), path)


def _changed(value: Any, random: Random) -> Any:
    """The value with one part of it changed, removed or added."""
    if isinstance(value, dict) and value and random.random() < 0.93:
        name = random.choice(list(value))
        change = random.random()
        if change < 0.12:
            del value[name]
        elif change < 0.2:
            value[random.choice(["more", "", name * 2 if isinstance(name, str) else 7])] = 1
        else:
            value[name] = _changed(value[name], random)
        return value
    if isinstance(value, list) and value and random.random() < 0.8:
        index = random.randrange(len(value))
        value[index] = _changed(value[index], random)
        return value
    if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor) and random.random() < 0.9:
        _changed(vars(value), random)
        return value
    if isinstance(value, torch.Tensor) and random.random() < 0.8:
        return random.choice(ODD_TENSORS)()
    return random.choice(ODD)
