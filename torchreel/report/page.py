"""Renders the document of a report as a page: one file that loads nothing from the network.

Lives here: the frame of the page and its policy.  What the page does is in `assets`.  The document
is a block of JSON, which no browser executes, and in which nothing can end the block.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from torchreel.escaping.characters import visible
from torchreel.report.document import PageDocument
from torchreel.report.packing import encoded, json_block

PAGE_BYTES = 150_000
"""Bytes for a page without its document: its scripts, its style and its library."""
SCRIPTS = (
    "vendor/dagre.min.js", "data.js", "dom.js", "overview.js", "ranks.js", "schedules.js",
    "links.js", "drawing.js", "compile.js", "comparison.js", "main.js", "live.js",
)  # fmt: skip
"""In this order; all of them share one scope, and none has a global but its own functions."""
_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)


@dataclass(frozen=True)
class PagePolicy:
    """The requests that a page may make: none, or those that its kind needs."""

    scripts: str = ""
    """Sources of scripts, beside its own one."""
    requests: str = ""
    """Sources that it may fetch."""


ALONE, SITE, SERVED = (
    PagePolicy(),
    PagePolicy(scripts="'self' file:"),
    PagePolicy(requests="'self'"),
)
"""One file; a folder, whose scripts lie beside it; the page of a server."""


def render(document: PageDocument, kind: PagePolicy = ALONE, revision: str = "") -> str:
    """Return the page; `revision` is that of the store, where a server shows it live."""
    style, script = asset("style.css"), script_text()
    title = html.escape(f"torchreel: {visible(document.store)}")
    return _PAGE.format(
        policy=policy(script, style, kind), title=title, revision=html.escape(revision),
        style=style, script=script, data=json_block(encoded(document)),
    )  # fmt: skip


def policy(script: str, style: str, kind: PagePolicy) -> str:
    """Allow this script, this style and the requests of a kind of page."""
    scripts = f"{_hash(script)} {kind.scripts}".rstrip()
    requests = f"connect-src {kind.requests}; " if kind.requests else ""
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_hash(style)}; {requests}"
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def script_text() -> str:
    """Return all scripts of the page as one, with the licence of the library that is among them."""
    licence = asset("vendor/dagre.LEGAL.txt")
    parts = [licence, *(_MAP.sub("", asset(name)) for name in SCRIPTS)]
    return "\n".join(parts)


@cache
def asset(name: str) -> str:
    """Return a file of the page."""
    return (files("torchreel.report") / "assets" / name).read_text(encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body data-revision="{revision}">
<noscript>This report needs JavaScript; it asks no server for anything.</noscript>
<div id="app"></div>
<script type="application/json" id="report">{data}</script>
<script>{script}</script>
</body>
</html>
"""
