"""data_scripts/docs_hooks.py: what a page says on the site."""

import docs_hooks
import pytest


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[an example](../examples/gec/README.md)", "an example (`examples/gec/README.md`)"),
        ("[docs/results](../docs/results/)", "`docs/results/`"),
        ("[rules](../CONTRIBUTING.md#rules)", "rules (`CONTRIBUTING.md`)"),
        ("[options](options.md#a)", "[options](options.md#a)"),
    ],
)
def test_links_to_files_that_are_not_on_the_site_become_paths(written, shown):
    assert docs_hooks.on_page_markdown(written, page=None) == shown


def test_docstrings_show_no_roles():
    html = "<p>See :meth:<code>~.Session.decode</code>. Example::</p>"
    assert docs_hooks.on_page_content(html) == "<p>See <code>Session.decode</code>. Example:</p>"
