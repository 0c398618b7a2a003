"""A text as the sentences that are translated and what stays between them.

A line is a sentence, as in the model's training data. In markup, each text between two tags is.
"""

import html
import re
from html.parser import HTMLParser
from typing import Callable, Iterable, List, NamedTuple, Sequence

#: Elements whose text is code, or what only old browsers show.
CODE = frozenset(
    ["script", "style", "code", "pre", "kbd", "samp", "textarea"]
    + ["xmp", "plaintext", "iframe", "noembed", "noframes"]
)

#: Elements that have another language's tags in them, which may close themselves.
FOREIGN = frozenset(["svg", "math"])

#: What ends a comment behind ``<!--``: at once, or else anywhere.
_EMPTY, _COMMENT_END = re.compile("-?>"), re.compile("--!?>")


class Segment(NamedTuple):
    """A part of a text.

    Attributes:
        text: of it.
        translated: whether it is a sentence; else it stays as it is.
    """

    text: str
    translated: bool = False


def of_text(text: str) -> List[Segment]:
    r"""The lines of a text; their ends, empty lines and the space around a line stay."""
    return [segment for part in re.split(r"(\r\n|\r|\n)", text) for segment in _line(part)]


def _line(text: str) -> Iterable[Segment]:
    """A sentence, and the space around it."""
    sentence = text.strip()
    if not sentence:
        return [Segment(text)]
    before, after = text.split(sentence, 1)
    return [Segment(before), Segment(sentence, True), Segment(after)]


def joined(segments: Sequence[Segment], translations: Iterable[str]) -> str:
    """The text again, with a translation in place of each sentence."""
    left = iter(translations)
    return "".join(next(left) if each.translated else each.text for each in segments)


def of_markup(text: str) -> List[Segment]:
    """The texts of HTML; tags, comments and code stay.

    Character references in sentences are resolved; see :func:`escaped`.
    """
    parser = _Markup(text)
    parser.feed(text)
    parser.close()
    return parser.segments


def without_blank(
    segments: Iterable[Segment], is_blank: Callable[[str], bool], markup: bool
) -> List[Segment]:
    """The same segments, but sentences without words stay, such as a zero-width space.

    Args:
        segments: of a text.
        is_blank: whether a sentence has no words.
        markup: whether the text is HTML.
    """
    return [
        Segment(escaped(each.text) if markup else each.text)
        if each.translated and is_blank(each.text)
        else each
        for each in segments
    ]


def escaped(translation: str) -> str:
    """A translation that may stand between tags."""
    return html.escape(translation, quote=False)


class _Markup(HTMLParser):
    """Collects the segments of markup.

    The parser tells where tags, comments and texts begin. What is between two such places is taken
    from the markup itself, because the parser of one version of Python leaves out, or changes, what
    that of another keeps. Character references are resolved in sentences and the space around them.

    Args:
        text: the markup, which is to be fed at once.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.segments: List[Segment] = []
        self._markup = text
        self._lines = [0, *(each.end() for each in re.finditer("\n", text))]
        self._code: List[str] = []  # elements of code that are open
        self._foreign = 0  # how many of FOREIGN are open
        self._begin, self._is_text = 0, True  # of the part that has not ended

    def _enter(self, is_text: bool) -> None:
        """Begin a part here; a text that the parser gives in pieces is one part."""
        if is_text and self._is_text:
            return
        line, column = self.getpos()
        self._end_part(self._lines[line - 1] + column)
        self._is_text = is_text

    def _end_part(self, end: int) -> None:
        part = self._markup[self._begin : end]
        self._begin = end
        text = html.unescape(part) if self._is_text and not self._code else ""
        sentence = " ".join(text.split())
        if not sentence:
            self.segments.append(Segment(part))
            return
        before = text[: len(text) - len(text.lstrip())]
        after = text[len(text.rstrip()) :]
        self.segments += [Segment(before), Segment(sentence, True), Segment(after)]

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._enter(False)
        if tag in FOREIGN:
            self._foreign += 1
        if tag in CODE:
            self._code.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """A tag such as ``<code/>``, whose slash counts in pictures and formulas alone."""
        if self._foreign or tag in FOREIGN:
            self._enter(False)
        else:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._enter(False)
        if tag in FOREIGN:
            self._foreign = max(0, self._foreign - 1)
        if tag in CODE and tag in self._code:
            # Elements inside of it that were not closed end with it.
            last = len(self._code) - 1 - self._code[::-1].index(tag)
            del self._code[last:]

    def handle_data(self, data: str) -> None:
        self._enter(True)

    def handle_comment(self, data: str) -> None:
        self._enter(False)

    def handle_decl(self, decl: str) -> None:
        self._enter(False)

    def handle_pi(self, data: str) -> None:
        self._enter(False)

    def unknown_decl(self, data: str) -> None:
        self._enter(False)

    def parse_comment(self, i: int, report: bool = True) -> int:
        """A comment, which ends as HTML has it; one that does not lasts until the end."""
        found = _EMPTY.match(self.rawdata, i + 4) or _COMMENT_END.search(self.rawdata, i + 4)
        if found is None:
            return self._rest()
        self._enter(False)
        return found.end()

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """A section such as ``<![endif]>``; one that does not end lasts until the end."""
        mark = "]]>" if self.rawdata.startswith("<![CDATA[", i) else ">"
        end = self.rawdata.find(mark, i)
        if end < 0:
            return self._rest()
        self._enter(False)
        return end + len(mark)

    def _rest(self) -> int:
        self._enter(False)
        return len(self.rawdata)

    def close(self) -> None:
        super().close()
        self._end_part(len(self._markup))
