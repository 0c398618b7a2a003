"""What has to be done before a test imports ``transformers``."""

import sys


def hide_torchaudio() -> None:
    """Let ``import torchaudio`` fail: fairseq brings one that may be built for another PyTorch.

    ``transformers`` imports it where it is installed, and nothing here needs it.
    """
    sys.modules.setdefault("torchaudio", None)  # type: ignore[arg-type]
