"""A text as the sentences that are translated and what stays between them.

A line is a sentence, as in the model's training data. In markup, each text between two tags is.
"""

import html
import re
from html.parser import HTMLParser
from typing import Iterable, List, NamedTuple, Sequence

#: Elements whose text is code.
CODE = ("script", "style", "code", "pre", "kbd", "samp", "textarea")


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
    parser = _Markup()
    parser.feed(text)
    parser.close()
    return parser.segments


def escaped(translation: str) -> str:
    """A translation that may stand between tags."""
    return html.escape(translation, quote=False)


class _Markup(HTMLParser):
    """Collects the segments of markup."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.segments: List[Segment] = []
        self._code: List[str] = []
        self._end_tag = ""  # as it is written
        self._text = ""  # that no tag has ended yet; the parser gives it in parts

    def _keep(self, markup: str) -> None:
        self._end_text()
        self.segments.append(Segment(markup))

    def _end_text(self) -> None:
        text, self._text = self._text, ""
        sentence = " ".join(text.split())
        if self._code or not sentence:
            raw = self._code[-1:] in (["script"], ["style"])
            self.segments.append(Segment(text if raw else escaped(text)))
            return
        before = text[: len(text) - len(text.lstrip())]
        after = text[len(text.rstrip()) :]
        self.segments += [Segment(before), Segment(sentence, True), Segment(after)]

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._keep(self.get_starttag_text() or "")
        if tag in CODE:
            self._code.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self._keep(self.get_starttag_text() or "")

    def parse_endtag(self, i: int) -> int:
        self._end_tag = self.rawdata[i : self.rawdata.find(">", i) + 1]
        return super().parse_endtag(i)

    def handle_endtag(self, tag: str) -> None:
        self._keep(self._end_tag or f"</{tag}>")
        if tag in self._code:  # elements inside of it that were not closed end with it
            last = len(self._code) - 1 - self._code[::-1].index(tag)
            del self._code[last:]

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_comment(self, data: str) -> None:
        self._keep(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._keep(f"<!{decl}>")

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """A section such as ``<![endif]>``, which stays; one that does not end is text."""
        mark = "]]>" if self.rawdata.startswith("<![CDATA[", i) else ">"
        end = self.rawdata.find(mark, i)
        if end < 0:
            return -1
        self._keep(self.rawdata[i : end + len(mark)])
        return end + len(mark)

    def unknown_decl(self, data: str) -> None:
        """The same of ``<![CDATA[…]]>`` in later Pythons, which do not ask as above."""
        self._keep(f"<![{data}]]>")

    def handle_pi(self, data: str) -> None:
        self._keep(f"<?{data}>")

    def close(self) -> None:
        super().close()
        self._end_text()
