"""A little clean text to make errors in."""

import random
from typing import List

SUBJECTS = "The file;The files;A user;Users;Their server;My friends;The library;I;They".split(";")
VERBS = "opens close opened is are reads wrote writes stopped stops doesn't write has".split()
OBJECTS = (
    "a copy;the copies;an address;some classes;their names;the weather, too;its value;"
    "the ``errno`` flag;a quick man;three women;in the house;at home;for a friend;whether it rains"
).split(";")


def sentences(count: int, seed: int = 0) -> List[str]:
    """Lines of small sentences that differ in length, with markup in some."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        parts = [
            f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)}, "
            f"because the other one {draw.choice(VERBS)} {draw.choice(OBJECTS)} quickly."
            for _ in range(draw.randint(1, 3))
        ]
        lines.append(" ".join(parts))
    return lines
