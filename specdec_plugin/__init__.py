"""The ``--user-dir`` entry: registers the plugin's models, criteria and tasks with fairseq.

From Python, :func:`load` decodes with them.
"""

from .fairseq_compat import early_interrupts, quiet  # before any import of PyTorch or fairseq
from .fairseq_compat.collector import let_imports_age, paused
from .fairseq_compat.importing import import_fairseq

with paused():
    import_fairseq()
    from .api import load, load_session
    from .criterions import blockwise_cross_entropy, glancing_block_loss, projected_cross_entropy
    from .engine.threads import respect_quota
    from .fairseq_compat.checkpoints import install_safe_loading
    from .fairseq_compat.fasta import refuse_commands_in_names
    from .fairseq_compat.hydra_train import tell_in_a_sentence
    from .fairseq_compat.numpy_names import install_numpy_names
    from .fairseq_compat.options import tell_missing_architecture
    from .fairseq_compat.plain_values import install_plain_values
    from .fairseq_compat.saving import install_whole_copies
    from .fairseq_compat.speech import explain_sounds
    from .fairseq_compat.user_dir import PluginPath
    from .models import block_nat, blockwise_transformer, marian_transformer
    from .tasks import (
        block_nat_translation,
        blockwise_translation,
        parallel_decoding,
        speech_to_text,
        translation_from_pretrained_bart,
        translation_multi_simple_epoch,
    )

    let_imports_age()

__all__ = ["load", "load_session"]

__path__ = PluginPath(__path__)  # so that fairseq takes any copy for the one loaded
explain_sounds()
install_numpy_names()
install_plain_values()
install_safe_loading()
install_whole_copies()
refuse_commands_in_names()
respect_quota()
tell_missing_architecture()
tell_in_a_sentence()
