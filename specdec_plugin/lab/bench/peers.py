"""Other engines that run the same verifier, timed beside the methods (``--peer``)."""

import copy
import functools
import importlib
import tempfile
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from torch import Tensor

from ...api import Session
from ...errors import PluginError
from ...tasks.parallel_decoding import SpecdecTranslationTask
from .methods import Method, equals_of


def build_peer(session: Session, name: str, generation: Dict[str, Any], beam: int = 1) -> Method:
    """Convert the session's verifier for another engine.

    Args:
        session: what is loaded.
        name: a key of :data:`PEERS`.
        generation: fairseq's ``max_len_a`` and ``max_len_b``, and its options of sampling.
        beam: how many beams it searches with.

    Raises:
        PluginError: the package is missing, or cannot run this model.
    """
    return PEERS[name](session, generation, beam)


class CTranslate2Generator:
    """CTranslate2's search or sampling behind fairseq's ``generate``.

    Args:
        translator: its ``Translator``.
        session: dictionaries, and the verifier for its limits.
        generation, beam: as for :func:`build_peer`.
    """

    def __init__(
        self, translator: Any, session: Session, generation: Dict[str, Any], beam: int = 1
    ) -> None:
        self.translator, self.beam_size = translator, beam
        self._options = _search_options(generation, beam)
        source, target = session.task.source_dictionary, session.task.target_dictionary
        self._words = _vocabulary(source)
        self._numbers = {word: number for number, word in enumerate(_vocabulary(target))}
        self._pad, self._source_eos, self._eos = source.pad(), source.eos(), target.eos()
        self._factor = generation.get("max_len_a", 0)
        self._offset = generation.get("max_len_b", 200)
        self._positions = session.models[0].max_decoder_positions()

    def attempt(self) -> None:
        """Translate a word: libraries of the device are loaded when they are first needed.

        Raises:
            PluginError: one is missing, say.
        """
        try:
            self.translator.translate_batch([self._words[-1:]], max_decoding_length=1)
        except RuntimeError as error:
            raise PluginError(
                f"--peer ctranslate2 cannot decode here: {error}. Install what is missing, or "
                "leave --peer out."
            ) from None

    def generate(
        self, models: Any, sample: Dict[str, Any], **rest: Any
    ) -> List[List[Dict[str, Any]]]:
        """Translate a batch.

        Args:
            models: not used.
            sample: fairseq's batch.
            rest: what fairseq passes besides, not used.

        Returns:
            for each row a list of the best hypothesis, its ``tokens`` (length,) alone.
        """
        sources = sample["net_input"]["src_tokens"]
        limit = int(self._factor * sources.size(1) + self._offset)
        results = self.translator.translate_batch(
            [self._text(row) for row in sources.tolist()],
            **self._options,
            max_batch_size=0,
            max_input_length=0,
            max_decoding_length=min(limit, self._positions - 1),
        )
        return [[{"tokens": self._tokens(result.hypotheses[0])}] for result in results]

    def _text(self, row: Sequence[int]) -> List[str]:
        """Words of a padded source, without its end, which CTranslate2 adds."""
        numbers = [number for number in row if number != self._pad]
        if numbers and numbers[-1] == self._source_eos:
            numbers.pop()
        return [self._words[number] for number in numbers]

    def _tokens(self, words: Sequence[str]) -> Tensor:
        return torch.tensor([*(self._numbers[word] for word in words), self._eos])


def _search_options(generation: Dict[str, Any], beam: int) -> Dict[str, Any]:
    """CTranslate2's options; it divides scores by the length, as fairseq does by default."""
    if not generation.get("sampling", False):
        return {"beam_size": beam}
    return {
        "beam_size": 1,
        "sampling_topk": max(0, generation["sampling_topk"]),  # 0: all symbols
        "sampling_topp": generation["sampling_topp"] if generation["sampling_topp"] > 0 else 1,
        "sampling_temperature": generation["temperature"],
    }


def _build_ctranslate2(
    session: Session, generation: Dict[str, Any], beam: int, dtype: str = "float32"
) -> Method:
    """Convert and load for the session's device, with PyTorch's number of threads."""
    library = _load("ctranslate2")
    reason = _unsupported(session)
    if reason is not None:
        raise PluginError(f"--peer ctranslate2 cannot run this: {reason}; leave --peer out.")
    with tempfile.TemporaryDirectory() as folder:
        specification = _specification(session)
        specification.validate()
        specification.optimize(quantization=dtype)
        specification.save(folder)
        translator = library.Translator(
            folder,
            device=session.device.type,
            device_index=session.device.index or 0,
            compute_type=dtype,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
    peer = CTranslate2Generator(translator, session, generation, beam)
    peer.attempt()
    exact = dtype == "float32" and "sampling" not in generation
    library.set_random_seed(generation.get("seed", 0))
    return Method(
        "ctranslate2",
        peer,
        None,
        equal_to=equals_of(beam) if exact else (),
    )


def _load(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise PluginError(
            f"--peer {package} needs a package that is not installed: "
            "pip install 'specdec-plugin[peers]'."
        ) from None


def _unsupported(session: Session) -> Optional[str]:
    """Why CTranslate2 would not compute what fairseq computes; None if it does."""
    if not isinstance(session.task, SpecdecTranslationTask) or session.prefix_size > 0:
        return "it would not begin targets with the symbol of their language"
    if len(session.models) > 1:
        return "it takes one model, and --path names several"
    if session.device.type not in ("cpu", "cuda"):
        return f"it runs on CPUs and CUDA devices, and --device is {session.device}"
    encoder, decoder = session.models[0].encoder, session.models[0].decoder
    if not isinstance(encoder, TransformerEncoderBase) or not isinstance(
        decoder, TransformerDecoderBase
    ):
        return f"the model is a {type(session.models[0]).__name__}, not a Transformer"
    checks = {
        "encoder and decoder differ in where they normalise": (
            encoder.cfg.encoder.normalize_before != decoder.cfg.decoder.normalize_before
        ),
        "encoder and decoder differ in their attention heads": (
            encoder.cfg.encoder.attention_heads != decoder.cfg.decoder.attention_heads
        ),
        "the model has no positions": encoder.embed_positions is None
        or decoder.embed_positions is None,
        "the model has an adaptive softmax": decoder.adaptive_softmax is not None,
        "the model projects its embeddings": decoder.project_in_dim is not None,
        f"it does not know the activation {encoder.cfg.activation_fn}": (
            encoder.cfg.activation_fn not in _ACTIVATIONS
        ),
    }
    return next((reason for reason, true in checks.items() if true), None)


#: CTranslate2's names of fairseq's activations.
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_accurate": "GELUTanh",
    "gelu_fast": "GELUTanh",
    "swish": "SWISH",
}


def _specification(session: Session) -> Any:
    """CTranslate2's description of the loaded verifier.

    Its ``FairseqConverter`` would load the checkpoint a second time, by another way
    than ours; here its own functions read the weights of the model that is loaded.
    """
    specs = importlib.import_module("ctranslate2.specs")
    fill = importlib.import_module("ctranslate2.converters.fairseq")
    # CTranslate2 rounds weights to eight bits where they are.
    model = copy.deepcopy(session.models[0]).cpu()
    cfg = model.encoder.cfg
    specification = specs.TransformerSpec.from_config(
        (len(model.encoder.layers), len(model.decoder.layers)),
        cfg.encoder.attention_heads,
        pre_norm=cfg.encoder.normalize_before,
        activation=getattr(specs.common_spec.Activation, _ACTIVATIONS[cfg.activation_fn]),
        layernorm_embedding=cfg.layernorm_embedding,
    )
    with torch.no_grad():
        fill.set_transformer_encoder(specification.encoder, model.encoder)
        fill.set_transformer_decoder(specification.decoder, model.decoder)
    specification.register_source_vocabulary(_vocabulary(session.task.source_dictionary))
    specification.register_target_vocabulary(_vocabulary(session.task.target_dictionary))
    specification.config.decoder_start_token = specification.config.eos_token
    specification.config.add_source_eos = True
    return specification


def _vocabulary(dictionary: Any) -> List[str]:
    """The words by number, with CTranslate2's name of the padding."""
    words = list(dictionary.symbols)
    words[dictionary.pad()] = "<blank>"
    return words


#: By name: builds the method.
PEERS: Dict[str, Callable[[Session, Dict[str, Any], int], Method]] = {
    "ctranslate2": _build_ctranslate2,
    "ctranslate2-int8": functools.partial(_build_ctranslate2, dtype="int8"),
}
