"""The ``--user-dir`` entry: registers the plugin's models, criteria and tasks with fairseq."""

from .checkpoints import install_safe_loading
from .tasks import parallel_decoding

install_safe_loading()
