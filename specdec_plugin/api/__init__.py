"""Decode from Python: :func:`load` gives a translator, :func:`load_session` several of them.

Example::

    import specdec_plugin

    translator = specdec_plugin.load("checkpoints/pydocs-en-es")
    (hypothesis,) = translator.translate(["The file is closed."])
    print(hypothesis.text, hypothesis.accepted_tokens)
    translator.method = "beam"

The folder has a ``specdec.json``, which ``specdec-pack`` writes. Without one, the files are named::

    folder = "checkpoints/pydocs-en-es"
    translator = specdec_plugin.load(
        f"{folder}/verifier.pt",
        source_lang="en",
        target_lang="es",
        decoding="specdec",
        subwords=f"{folder}/spm.model",
    )

One session holds the models once, for as many methods as are compared::

    session = specdec_plugin.load_session("checkpoints/pydocs-en-es")
    greedy = session.translator("greedy")
    drafted = session.translator("specdec")

Several threads may share a session. One batch is decoded at a time, and calls take turns.
"""

from .hypothesis import Hypothesis
from .loading import check_device, load, load_models, load_session, open_folder
from .searches import FAIRSEQ, SEARCH_OPTIONS
from .session import Session, Translator

__all__ = [
    "FAIRSEQ",
    "SEARCH_OPTIONS",
    "Hypothesis",
    "Session",
    "Translator",
    "check_device",
    "load",
    "load_models",
    "load_session",
    "open_folder",
]
