"""A hook of MkDocs: links of pages to the project's other files, which are not on the site."""

import re
from typing import Any

#: A Markdown link that leaves the folder ``docs``: its text and the path in the project.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show the path beside the text of such a link.

    Where the sources are read, the link leads to the file. The site does not have the file.
    """
    return _OUTSIDE.sub(_as_path, markdown)


def _as_path(link: "re.Match[str]") -> str:
    text, path = link.groups()
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"
