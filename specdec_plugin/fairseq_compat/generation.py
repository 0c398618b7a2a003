"""fairseq's own generation flags beside ``--decoding``: kept, or refused in a sentence."""

from dataclasses import MISSING, fields
from typing import Any, Dict

from fairseq.dataclass.configs import GenerationConfig

from ..errors import PluginError
from .options import flag_of

#: Flags of fairseq that keep their meaning, or have none for any greedy search.
HONOURED = frozenset(
    [
        "max_len_a", "max_len_b", "min_len", "unnormalized", "lenpen", "unkpen", "prefix_size",
        "temperature", "print_step", "retain_iter_history", "sacrebleu", "score_reference",
        "no_early_stop", "no_beamable_mm",
    ]
)  # fmt: skip

#: Flags that parallel greedy decoding cannot keep: what to do instead.
REFUSED: Dict[str, str] = {
    "beam": "add --beam 1 (each method here speeds up greedy decoding)",
    "nbest": "greedy decoding has one hypothesis; leave it out",
    "replace_unk": "it needs attention weights, which are not computed; leave it out",
    "match_source_len": "leave it out, or leave out --decoding",
    "no_repeat_ngram_size": "leave it out, or leave out --decoding",
    "constraints": "leave it out, or leave out --decoding",
    "print_alignment": "it needs attention weights, which are not computed; leave it out",
    "lm_path": "a language model is not verified in parallel; leave it out",
    "lm_weight": "a language model is not verified in parallel; leave it out",
    "retain_dropout": "with dropout no two passes agree; leave it out",
    "retain_dropout_modules": "with dropout no two passes agree; leave it out",
}
_SAMPLING = "decoding here is deterministic; leave it out, or leave out --decoding"
_DIVERSE = "diverse search needs a beam; leave it out, or leave out --decoding"
_SPEECH = "it belongs to speech translation in two passes; leave it out"
_ITERATIVE = "it belongs to fairseq's iterative refinement; leave it out"
REFUSED.update(dict.fromkeys(["sampling", "sampling_topk", "sampling_topp"], _SAMPLING))
REFUSED.update(
    dict.fromkeys(["diverse_beam_groups", "diverse_beam_strength", "diversity_rate"], _DIVERSE)
)
REFUSED.update(dict.fromkeys(["beam_mt", "max_len_a_mt", "max_len_b_mt", "lenpen_mt"], _SPEECH))
REFUSED.update(
    dict.fromkeys(
        [
            "iter_decode_eos_penalty", "iter_decode_max_iter", "iter_decode_force_max_iter",
            "iter_decode_with_beam", "iter_decode_with_external_reranker",
        ],
        _ITERATIVE,
    )
)  # fmt: skip


def check_generation(args: Any, method: str) -> None:
    """Refuse fairseq's flags that would be ignored; PluginError says which and what to do.

    Args:
        args: fairseq's generation options (dataclass, OmegaConf or Namespace).
        method: the value of ``--decoding``.
    """
    for item in fields(GenerationConfig):
        if item.name not in REFUSED:
            continue
        default = 1 if item.name == "beam" else item.default
        value = getattr(args, item.name, default)
        if default is not MISSING and value != default and value is not None:
            raise PluginError(
                f"{flag_of(item.name)} {value} cannot be kept with --decoding {method}: "
                f"{REFUSED[item.name]}."
            )
