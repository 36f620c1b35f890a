"""Numbers that make no sense, and addresses that name nothing: no verb takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.stores import failing

SECONDS = ("nan", "inf", "-inf", "0", "-5", "1e400", "1e300")
COUNTS = ("0", "-5", "1.5", "nan", "9" * 5000)
NUMBERS = ("-5", "1.5", "nan", "9" * 30, "9" * 5000)
"""Of events and of other things that a store numbers."""


@pytest.mark.parametrize(
    ("verb", "option", "values"),
    [
        ("replay", "--timeout", SECONDS),
        ("replay", "--repeat", COUNTS),
        ("replay", "--memory", COUNTS),
        ("replay", "--at", NUMBERS),
        ("minify", "--limit-time", SECONDS),
        ("minify", "--hang-after", SECONDS),
        ("minify", "--limit-runs", COUNTS),
        ("minify", "--checks", COUNTS),
        ("minify", "--other-failure", NUMBERS),
        ("bisect", "--limit-time", SECONDS),
        ("bisect", "--limit-runs", COUNTS),
        ("export", "--checks", COUNTS),
        ("export", "--other-failure", NUMBERS),
        ("shapes", "--at", NUMBERS),
        ("shapes", "--env", NUMBERS),
        ("report", "--max-size", ("nan", "-5", "1e400", "9" * 400)),
    ],
)
def test_no_verb_takes_a_number_that_makes_no_sense(
    run: Run, empty: Path, verb: str, option: str, values: tuple[str, ...]
) -> None:
    path = failing(empty)
    for value in values:
        result = run(verb, path, option, value)
        assert (result.status, result.out) == (2, ""), (value, result)
        assert "Traceback" not in result.err


@pytest.mark.parametrize("value", SECONDS)
def test_a_query_takes_no_such_time(run: Run, empty: Path, value: str) -> None:
    assert run("query", empty, "SELECT 1", "--limit-time", value).status == 2


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--compile-timeout", ("nan", "inf", "-5", "1e400", "1e300")),
        ("--slow-compile", ("nan", "inf", "-5", "1e400", "1e300")),
        ("--sample", ("nan", "inf", "-5", "1.5")),
        ("--max-bytes", ("nan", "-5", "9" * 400)),
        ("--max-age", ("nan", "-5", "9" * 400)),
    ],
)
def test_a_recording_takes_no_such_number(
    run: Run, tmp_path: Path, option: str, values: tuple[str, ...]
) -> None:
    for value in values:
        result = run("record", "-o", tmp_path / "run.db", option, value, "--", "true")
        assert result.status == 2, (value, result)
    assert not (tmp_path / "run.db").exists()


@pytest.mark.parametrize("place", ["#9", "#1/7/7", "#1/0/1_9", "#1/g3/0/1"])
@pytest.mark.parametrize(
    "words",
    [
        ("ls",), ("show",), ("report", "-f", "-o", "page.html"), ("shapes",), ("guards",),
        ("why-recompile",), ("replay",), ("replay", "--all"), ("replay", "--sequence", "--trust"),
        ("minify",), ("bisect",), ("analyze",), ("export",),
    ],
)  # fmt: skip
def test_an_address_that_names_nothing_is_told(
    run: Run, empty: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], place: str
) -> None:
    monkeypatch.chdir(empty.parent)
    verb, *options = words
    result = run(verb, f"{failing(empty)}{place}", *options)
    assert (result.status, result.out) == (2, ""), result
    assert result.err.startswith("usage: ")


@pytest.mark.parametrize("verb", ["ls", "show", "report", "minify", "bisect", "diff"])
def test_an_event_that_is_not_there_is_told(
    run: Run, empty: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(empty.parent)
    path = failing(empty)
    for place in ("#1@999999", "#1/0/1@999999"):
        second = [path] if verb == "diff" else []
        result = run(verb, f"{path}{place}", *second)
        assert (result.status, result.out) == (2, ""), result
        assert "is not in the event log" in result.err
