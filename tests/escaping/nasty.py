"""Text that means something somewhere: what a stranger would write into a store."""
# ruff: noqa: RUF001

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st

Test = TypeVar("Test", bound=Callable[..., None])

FRAGMENTS = (
    "\n", "\r", "\r\n", "\t", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\x00", "\x1b[2J",
    "\x1b]8;;http://a.b\x07", "\x9b", "\x7f", "\u00ad", "\u200b", "\u200d", "\u200e", "\u202e",
    "\u2060", "\u2066", "\ufeff", "\ufe0f", "\U000e0041", "\U000e0100", "\u3164", "\u115f",
    "\u0300" * 9, "\u20dd", "\ud800", "\u2800", "\u00a0", "\ufff9", "\U0001d41a", "ﬁ", "а", "＃",
    "-->", "--->", "--!>", "<!--", "-", ">", "->", "<", "&lt;", "&#64;", "<script>a</script>",
    "`", "``", "```", "~~~", "\n```\n", "\n~~~~\n", "\n# h", "\n\n---\n", "\n===\n", "* a", "1. a",
    "|a|b|\n|-|-|", "> q", "[a](http://a.b)", "![a](http://a.b)", "[a]: http://a.b", "<http://a.b>",
    "http://a.b", "www.a.b", "a@b.cc", "@torvalds", "#123", "org/repo#1", "GH-1", ":skull:", "$x$",
    "*a*", "_a_", "~~a~~", "\\", "\\\\", "'", '"', "'''", '"""', "#", "# -*- coding: utf_7 -*-",
    "coding: unicode_escape", "coding=rot13", "+AAo-import os", "\\nimport os", "vim: set ai:",
    "-*- eval: (x) -*-", "{", "}", "{0}", "{{ x }}", "{% x %}", "%s", "$(reboot)", "; reboot",
    "=1+1", "@sum(1)", "\nimport os\n", "import os", " ", "    ", "a", "größe", "円",
)  # fmt: skip

EVERYTHING = "x".join(FRAGMENTS)
TEXTS = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).map("".join) | st.text()


def with_every_fragment(test: Test) -> Test:
    """Try a property test of one `text` on each fragment, on all together, and on others."""
    made = given(TEXTS)(test)
    for text in (*FRAGMENTS, EVERYTHING):
        made = example(text)(made)
    return settings(deadline=None)(made)  # type: ignore[return-value]
