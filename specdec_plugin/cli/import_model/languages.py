"""The symbols of languages, under the names that fairseq's multilingual task looks up."""

import re
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.data.multilingual.multilingual_utils import LangTokStyle, get_lang_tok

from .symbols import Symbols

#: The task that writes these symbols before sources and targets.
TASK = "specdec_translation_multi_simple_epoch"
#: Its file with a language a line, beside the dictionaries.
FILE = "langs.txt"


class _Form(NamedTuple):
    """How a kind of model writes a language.

    Attributes:
        style: of fairseq, as ``--lang-tok-style``.
        symbol: whose first group that matched is the language's code.
        needed: symbols that fairseq's task adds to dictionaries that lack them.
    """

    style: str
    symbol: "re.Pattern[str]"
    needed: FrozenSet[str] = frozenset()


#: By ``model_type``. NLLB is an M2M-100 with longer codes.
_FORMS = {
    "m2m_100": _Form(
        LangTokStyle.multilingual.value,
        # Vocabularies have runs of underscores, too.
        re.compile(r"__([a-z]{2,3}(?:_[A-Za-z]+)?)__|([a-z]{3}_[A-Z][a-z]{3})"),
    ),
    "mbart": _Form(
        LangTokStyle.mbart.value, re.compile(r"([a-z]{2,3}_[A-Z]{2})"), frozenset(["<mask>"])
    ),
}
#: Kinds of models that begin targets with a language.
OF_LANGUAGES = frozenset(_FORMS)


class Languages(NamedTuple):
    """The languages of a model.

    Attributes:
        codes: in the order of the dictionary; none where the model has no symbols of languages.
        style: as ``--lang-tok-style``.
    """

    codes: List[str]
    style: str

    def options(self, source: str, target: str) -> Dict[str, Any]:
        """The options of :data:`TASK` for a direction, by name, without the list of languages."""
        return {
            "lang_pairs": f"{source}-{target}",
            "encoder_langtok": "src",
            "decoder_langtok": True,
            "lang_tok_style": self.style,
        }


def with_languages(symbols: Symbols, kind: str) -> Tuple[Symbols, Languages]:
    """Rename the symbols of languages as fairseq's task writes them, such as ``__eng_Latn__``.

    Args:
        symbols: of both sides.
        kind: ``model_type`` of config.json.
    """
    form = _FORMS.get(kind)
    if form is None or not form.needed <= {*symbols.dictionary.symbols}:
        return symbols, Languages([], "")
    dictionary, codes = Dictionary(), []
    for symbol in symbols.dictionary.symbols[dictionary.nspecial :]:
        code = _code(form, symbol)
        if code is not None:
            codes.append(code)
            symbol = get_lang_tok(code, form.style)
        dictionary.add_symbol(symbol)
    return Symbols(dictionary, symbols.ids), Languages(codes, form.style)


def _code(form: _Form, symbol: str) -> Optional[str]:
    found = form.symbol.fullmatch(symbol)
    return None if found is None else next(each for each in found.groups() if each)
