"""What a page of specdec-ddgviz holds."""

import json
from html.parser import HTMLParser


class Elements(HTMLParser):
    """Start tags, and the text of scripts."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts.append(data)


def data_of(source):
    return json.loads(Elements(source).scripts[0])
