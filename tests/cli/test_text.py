"""Words and numbers for people."""

import re
import sys
import time
from io import StringIO

import pytest

from torchreel.commands.rendering.text import count, seconds, shortened
from torchreel.commands.rendering.waiting import while_slow
from torchreel.commands.views import minify as minify_view
from torchreel.store.failures.signature import Signature


def test_numbers_are_told_as_people_do() -> None:
    assert [seconds(s) for s in (0.01, 2.34, 99.4, 125)] == [
        "10 ms",
        "2.3 s",
        "99.4 s",
        "2 min 05 s",
    ]
    assert (count(1, "entry", "entries"), count(2, "entry", "entries")) == ("1 entry", "2 entries")
    assert shortened("a long line\nand another", 6) == "a lon…"


def test_what_takes_long_is_said_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said = StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with while_slow("grouping", every=0.01):
        while said.getvalue().count("\n") < 2:
            time.sleep(0.01)
    told = said.getvalue()
    forms = r"grouping, \d+ ms|grouping, \d.*s"
    assert all(re.fullmatch(forms, line) for line in told.splitlines())
    time.sleep(0.05)
    assert said.getvalue() == told


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with while_slow("grouping"):
        pass
    assert capsys.readouterr() == ("", "")


def test_another_failure_in_a_line_says_type_stage_and_message() -> None:
    many = Signature(
        "exception", "lowering", "forward", ("KeyError", "InductorError"), message="x" * 99
    )
    line = minify_view._in_short(many)
    assert line.startswith("KeyError in stage lowering: xxx")
    assert len(line) == 80
    died = Signature("crash", "run", "", signal="SIGSEGV")
    assert minify_view._in_short(died) == "crash in stage run: SIGSEGV"
