"""Loading splits of the data, with a sentence where there is none of that name."""

from typing import Any

from fairseq.tasks import FairseqTask

from ..errors import PluginError


class SplitMixin(FairseqTask):
    """Explains the errors of fairseq's readers of data."""

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Load a split.

        Raises:
            PluginError: the data folder has none of this name, or of these languages.
        """
        try:
            super().load_dataset(split, *args, **kwargs)
        except (FileNotFoundError, KeyError) as error:
            raise PluginError(
                f"The data have no split {split} ({error}). Name a folder that fairseq-preprocess "
                "wrote, and a split of it (--gen-subset)."
            ) from error
