"""The ``--user-dir`` entry: registers the plugin's models, criteria and tasks with fairseq."""

from .checkpoints import install_safe_loading
from .tasks import parallel_decoding
from .user_dir import PluginPath

__path__ = PluginPath(__path__)  # so that fairseq takes any copy for the one loaded
install_safe_loading()
