"""Which scripts a report can run."""

from __future__ import annotations

import base64
import hashlib
import json
from html.parser import HTMLParser


class _Scripts(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.policies, self.scripts, self._inside = [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(attributes["content"])
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append([attributes, ""])

    def handle_endtag(self, tag):
        self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1][1] += data


def only_our_script(text):
    """Check that a page runs nothing but the program of charts, whose digest its policy names, and that all else in
    elements ``script`` is data."""
    from problm.report import interactive

    page = _Scripts(text)
    (policy,) = page.policies
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    data = [content for attributes, content in page.scripts if attributes == {"type": "application/json"}]
    programs = [content for attributes, content in page.scripts if attributes == {}]
    assert len(data) + len(programs) == len(page.scripts), "a script with other attributes"
    for content in data:
        assert set(json.loads(content)) >= {"labels", "series"}
    if not page.scripts:
        assert "script-src" not in rules
        return
    assert programs == [interactive.script()]
    digest = base64.b64encode(hashlib.sha256(programs[0].encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
