"""What a request asks for, in LibreTranslate's form, and what is refused."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import parse_qsl

from ..folder import Folder
from .decoding import Key, keeps_phrases
from .refusal import RefusalError
from .segments import Segment, escaped, joined, of_markup, of_text, without_blank

#: The greatest number of other translations that a client may ask for.
MOST_ALTERNATIVES = 9
FORMS = ("text", "html")


class Limits(NamedTuple):
    """How much a client may ask for at once.

    Attributes:
        characters: of all texts of a request.
        body: bytes of a request.
        sentences: that wait, of all clients.
        requests: of one client that are not answered yet; 0: any number.
    """

    characters: int = 5_000
    body: int = 1 << 20
    sentences: int = 1_000
    requests: int = 128


@dataclass(frozen=True)
class Offer:
    """What a server translates.

    Attributes:
        source: the code of its source language, or of that which ``auto`` means.
        target: of its target language, or of the first one of several.
        methods: the names of its methods, the default first.
        languages: that may be translated into each other; none where there is one direction.
    """

    source: str
    target: str
    methods: Sequence[str]
    languages: Sequence[str] = ()

    @classmethod
    def of(cls, folder: Folder, methods: Sequence[str], languages: Sequence[str] = ()) -> "Offer":
        """That of a folder, which may leave languages without a code (``und``)."""
        return cls(folder.source_lang or "und", folder.target_lang or "und", methods, languages)

    @cached_property
    def targets(self) -> Dict[str, List[str]]:
        """The target languages of each language, by its code; the source language is the first."""
        codes = [*dict.fromkeys([self.source, self.target, *self.languages])]
        found: Dict[str, List[str]] = {code: [] for code in codes}
        found[self.source] = [self.target]
        if self.languages:
            found = {code: [each for each in codes if each != code] for code in codes}
        return found


class Question(NamedTuple):
    """A request for translations.

    Attributes:
        texts: the segments of each.
        several: whether they came as a list.
        key: how they are decoded.
        markup: whether they are HTML.
        detects: whether the client leaves the source language open.
    """

    texts: List[List[Segment]]
    several: bool
    key: Key
    markup: bool
    detects: bool

    @property
    def sentences(self) -> List[str]:
        """All sentences of all texts."""
        return [each.text for text in self.texts for each in text if each.translated]

    def answer(self, found: Sequence[Any], offer: Offer) -> Dict[str, Any]:
        """LibreTranslate's answer.

        Args:
            found: a hypothesis for each of ``sentences``.
            offer: of the server.
        """
        lists = [each.nbest or (each,) for each in found]
        best, *others = [self._filled(lists, rank) for rank in range(self.key.nbest)]
        answer: Dict[str, Any] = {"translatedText": best if self.several else best[0]}
        if others:
            answer["alternatives"] = (
                [list(each) for each in zip(*others)]
                if self.several
                else [text for (text,) in others]
            )
        if self.detects:
            one = {"confidence": 0, "language": offer.source}
            answer["detectedLanguage"] = [one for _ in self.texts] if self.several else one
        return answer

    def _filled(self, lists: Sequence[Sequence[Any]], rank: int) -> List[str]:
        """Each text, from hypotheses of one rank; where a search found fewer, from the last."""
        chosen = [each[min(rank, len(each) - 1)].text for each in lists]
        left = iter(map(escaped, chosen) if self.markup else chosen)
        return [joined(text, left) for text in self.texts]


def parameters(body: bytes, kind: str, encoding: str = "") -> Dict[str, Any]:
    """The parameters of a request.

    Args:
        body: of the request.
        kind: its ``Content-Type``.
        encoding: its ``Content-Encoding``.

    Raises:
        RefusalError: it is not what it should be.
    """
    if encoding.lower() not in ("", "identity"):
        raise RefusalError(415, f"The server does not unpack {_short(encoding)}. Send it plain.")
    kind, _, charset = kind.lower().partition(";")
    kind, (_, _, charset) = kind.strip(), charset.partition("charset=")
    charset = charset.split(";")[0].strip(' "')
    if charset not in ("", "utf-8", "utf8"):
        raise RefusalError(415, f"The server does not read {charset}. Send UTF-8.")
    if kind not in ("", "application/json", "application/x-www-form-urlencoded"):
        raise RefusalError(
            415,
            f"The server does not read {kind}. Send application/json, or "
            "application/x-www-form-urlencoded.",
        )
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusalError(400, "The request is not UTF-8. Encode it so.") from None
    if kind == "application/x-www-form-urlencoded":
        return fields_of(text)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusalError(400, f"The request is not JSON ({error}). Send an object.") from None
    if not isinstance(found, dict):
        raise RefusalError(400, "The request is JSON, but not an object. Send an object with q.")
    return found


def fields_of(form: str) -> Dict[str, Any]:
    """The fields of an URL-encoded form, or of what stands behind ``?``.

    Raises:
        RefusalError: what it encodes is not UTF-8.
    """
    try:
        pairs = parse_qsl(form, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise RefusalError(400, "The request is not UTF-8. Encode it so.") from None
    phrases = [value for name, value in pairs if name == "phrases"]  # which alone may be several
    return {**dict(pairs), **({"phrases": phrases} if phrases else {})}


def question(
    given: Mapping[str, Any],
    offer: Offer,
    limits: Limits,
    is_blank: Callable[[str], bool] = lambda text: False,
) -> Question:
    """What the parameters of a request ask for.

    Args:
        given: the parameters.
        offer, limits: of the server.
        is_blank: whether the model reads no words in a sentence, which stays as it is then.

    Raises:
        RefusalError: a parameter is missing, is of another type, or asks for too much.
    """
    texts = _texts(given.get("q"))
    prefix, phrases = _prefix(given), _phrases(given)
    length = sum(map(len, [*texts, prefix, *phrases]))
    if length > limits.characters:
        raise RefusalError(
            413,
            f"The text has {length:,} characters, and the server takes {limits.characters:,}. "
            "Send it in parts.",
        )
    direction = _direction(given, offer)
    form = given.get("format", "text")
    if form not in FORMS:
        raise RefusalError(400, f"The format {_short(form)} is unknown. Give text or html.")
    split = of_markup if form == "html" else of_text
    segments = [without_blank(split(text), is_blank, form == "html") for text in texts]
    found = Question(
        segments,
        isinstance(given["q"], list),
        _key(given, offer, phrases)._replace(direction=direction, prefix=prefix),
        form == "html",
        given["source"] == "auto",
    )
    for name, value in (("prefix", prefix), ("phrases", phrases)):
        if value and (found.markup or len(found.sentences) != 1):
            raise RefusalError(
                400,
                f"The parameter {name} goes with one line of text in q. Leave one of the two out.",
            )
    parts = max(len(texts), len(found.sentences))
    if parts > limits.sentences:
        raise RefusalError(
            413,
            f"The request has {parts:,} texts or lines, and the server takes "
            f"{limits.sentences:,}. Send it in parts.",
        )
    return found


def _texts(q: Any) -> List[str]:
    if q is None:
        raise RefusalError(400, "The parameter q is missing. Give the text to translate.")
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise RefusalError(400, "The parameter q is neither a text nor a list of texts. Give one.")
    for text in texts:
        _check_text("q", text)
    return texts


def _check_text(name: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RefusalError(
            400, f"The parameter {name} has half of a surrogate pair. Send whole characters."
        ) from None


def _prefix(given: Mapping[str, Any]) -> str:
    """The text with which the translation begins, which LibreTranslate does not have."""
    prefix = given.get("prefix", "")
    if not isinstance(prefix, str) or len(prefix.splitlines()) > 1:
        raise RefusalError(400, "The parameter prefix is no line of text. Give one.")
    _check_text("prefix", prefix)
    return prefix.strip()


def _phrases(given: Mapping[str, Any]) -> Tuple[str, ...]:
    """The texts that the translation contains, which LibreTranslate does not have."""
    phrases = given.get("phrases", [])
    phrases = [phrases] if isinstance(phrases, str) else phrases
    if not isinstance(phrases, list) or not all(
        isinstance(each, str) and len(each.splitlines()) < 2 for each in phrases
    ):
        raise RefusalError(400, "The parameter phrases is no list of lines of text. Give one.")
    for each in phrases:
        _check_text("phrases", each)
    return tuple(each.strip() for each in phrases if each.strip())


def _direction(given: Mapping[str, Any], offer: Offer) -> Optional[Tuple[str, str]]:
    """The languages that are asked for; None for those of the folder."""
    sources = [code for code, targets in offer.targets.items() if targets]
    _check_language("source", given.get("source"), [*sources, "auto"])
    source = offer.source if given["source"] == "auto" else given["source"]
    _check_language("target", given.get("target"), offer.targets[source])
    direction = source, given["target"]
    return None if direction == (offer.source, offer.target) else direction


def _check_language(name: str, code: Any, known: Sequence[str]) -> None:
    if code is None:
        raise RefusalError(400, f"The parameter {name} is missing. Give {known[0]}.")
    if code not in known:
        some = " or ".join(known) if len(known) < 4 else "one of those at /languages"
        raise RefusalError(400, f"The server has no {name} language {_short(code)}. Give {some}.")


def _key(given: Mapping[str, Any], offer: Offer, phrases: Tuple[str, ...]) -> Key:
    """How to decode; other translations need a beam search."""
    fit = [each for each in offer.methods if keeps_phrases(each) or not phrases]
    method = _method_of(given, offer, fit)
    number = _number(given.get("alternatives", 0))
    if number is None or not 0 <= number <= MOST_ALTERNATIVES:
        raise RefusalError(
            400,
            f"alternatives is {_short(given['alternatives'])}. Give a number from 0 to "
            f"{MOST_ALTERNATIVES}.",
        )
    if number == 0:
        return Key(method, phrases=phrases)
    if given.get("method", "beam") != "beam":
        raise RefusalError(
            400,
            f"alternatives are found by the method beam, and method is {method}. Leave one of the "
            "two out.",
        )
    if "beam" not in offer.methods:
        raise RefusalError(
            400,
            "alternatives need the method beam, which the server does not offer. Leave them out.",
        )
    return Key("beam", number + 1, phrases=phrases)


def _method_of(given: Mapping[str, Any], offer: Offer, fit: Sequence[str]) -> str:
    """The method that is asked for, which LibreTranslate does not have.

    Args:
        fit: those of the offer that keep the phrases which are asked for.

    Raises:
        RefusalError: the server does not offer it, or it does not fit.
    """
    if not fit:
        raise RefusalError(400, "No method of the server keeps phrases. Leave phrases out.")
    method = given.get("method", fit[0])
    if not isinstance(method, str) or method not in offer.methods:
        raise RefusalError(
            400, f"The method {_short(method)} is not offered. Give {', '.join(offer.methods)}."
        )
    if method not in fit:
        raise RefusalError(
            400, f"The method {method} keeps no phrases. Give {', '.join(fit)}, or leave one out."
        )
    return method


def _number(value: Any) -> Optional[int]:
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, (int, str)) else None
    except ValueError:
        return None


def _short(value: Any) -> str:
    """A value in a sentence, however long it is, or its type."""
    if isinstance(value, (list, dict)):  # it may be too deep to be written
        return "(a list)" if isinstance(value, list) else "(an object)"
    text = value if isinstance(value, str) else json.dumps(value)
    text = text.encode("utf-8", "replace").decode()  # half a character cannot be sent back
    return text if len(text) <= 40 else text[:40] + "…"
