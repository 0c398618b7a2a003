"""Fifty sentences decoded with the shipped model: ``python -m tests.support.fifty``.

It prints the kernels that decode, and the tokens of each sentence. Kernels of all levels and
processors have to print the same tokens.
"""

import json
from pathlib import Path
from typing import Dict, List

from specdec_plugin import load_session
from specdec_plugin.engine import native

SENTENCES = """\
The method returns the number of bytes that were written to the file.
If the key is missing, the default value is returned and nothing changes.
Open the file in binary mode to read its content without a conversion.
The loop ends as soon as the first matching element has been found.
A list can hold objects of different types, but that is seldom useful.
This function was renamed in version 3.4.
Names that begin with an underscore are private.
Use a dictionary when the order of the elements is not important.
The server waits for a request and answers it in a new thread.
Arguments are passed by position or by name.
The second call has no effect.
An empty string is false, and every other string is true.
The compiler cannot know the type of this variable.
Changed: the timeout is now given in seconds.
Each line of the file is decoded before it is split into words.
Do not modify the list while you iterate over it.
The decorator replaces the function by another one.
When the process ends, its temporary files are removed.
The class has two attributes and one method.
It is possible to write the same test with fewer lines.
A generator computes its values only when they are needed.
The exception is caught by the caller.
Numbers are rounded to the nearest even digit.
See the next section for an example.
The module contains functions to convert between time zones.
Both operands must be integers.
This option is ignored on systems that have no symbolic links.
The result is a tuple of the name and the value.
Wait until all threads have finished their work.
The index starts at zero and not at one.
You can set the environment variable before the program is started.
Lines that begin with a number sign are comments.
The buffer is copied, so later changes are not visible.
What happens if the connection is lost during the transfer?
The keys of a dictionary must be immutable.
Create a new object for each request.
This is the fastest way to join many strings.
The package must be installed before it can be imported.
Returns None if no value was found.
The password is never stored in the database.
The first argument is the path of the script.
An iterator has no length.
Whitespace at the end of the line is removed.
The search is case sensitive unless the flag is set.
Two sets are equal if they have the same elements.
The event is sent to all objects that are registered.
Memory is freed when the last reference disappears.
The parser reads the tokens from left to right.
If several errors occur, only the first one is reported.
The default is the encoding of the operating system.
"""
BATCH = 10
#: With their flags. The second drafts in any batch, by 8-bit kernels.
METHODS: Dict[str, Dict[str, int]] = {"greedy": {}, "specdec": {"draft_rows": 0}}
MODELS = Path(__file__).resolve().parents[2] / "checkpoints" / "pydocs-en-es"


def main() -> None:
    """Print a JSON object: kernels, accepted tokens per iteration, and each method's tokens."""
    session = load_session(
        str(MODELS / "verifier.pt"),
        source_lang="en",
        target_lang="es",
        subwords=str(MODELS / "spm.model"),
    )
    dataset = session.dataset(session.pieces(SENTENCES.splitlines()))
    tokens: Dict[str, Dict[int, List[int]]] = {}
    for decoding, flags in METHODS.items():
        translator, found = session.translator(decoding, **flags), tokens.setdefault(decoding, {})
        # Not fairseq's iterator: it needs an extension, which an emulated Python lacks.
        for begin in range(0, len(dataset), BATCH):
            end = min(begin + BATCH, len(dataset))
            batch = dataset.collater([dataset[number] for number in range(begin, end)])
            for number, (best, *_) in zip(
                batch["id"].tolist(), translator.decode(batch), strict=True
            ):
                found[number] = best["tokens"].tolist()
    accepted = translator.statistics.accepted_tokens
    kernels = native.instructions(native.library())
    print(json.dumps({"kernels": kernels, "accepted": accepted, **tokens}))


if __name__ == "__main__":
    main()
