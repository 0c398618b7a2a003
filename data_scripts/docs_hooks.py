"""Hooks of MkDocs: links to files that are not on the site, and docstrings' reST in Markdown."""

import re
from typing import Any

#: A Markdown link that leaves the folder ``docs``: its text and the path in the project.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)[^)]*\)")
#: What Markdown makes of reST's roles.
_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>[~.]*([^<]+)</code>")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show the path beside the text of a link to a file of the project.

    Where the sources are read, the link leads to the file. The site does not have the file.
    """
    return _OUTSIDE.sub(_as_path, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show names that docstrings refer to as code, and their examples behind a colon."""
    return _ROLE.sub(r"<code>\1</code>", html).replace("::</p>", ":</p>")


def _as_path(link: "re.Match[str]") -> str:
    text, path = link.groups()
    return f"`{path}`" if text.strip("`/") == path.strip("/") else f"{text} (`{path}`)"
