"""Addresses: what is printed can be typed again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchreel.errors import UsageError
from torchreel.store import addressing
from torchreel.store.addressing import Address, parse, without_event

NUMBERS = st.integers(0, 2**63 - 1)
COMPILES = st.from_regex(r"!?[0-9]{1,3}(/[0-9]{1,3}){0,2}", fullmatch=True)


@st.composite
def addresses(draw: st.DrawFn) -> Address:
    store = draw(st.text(st.characters(exclude_characters="\0"), min_size=1))
    recording = draw(NUMBERS)
    compile_ = draw(st.none() | COMPILES)
    attempt = None if compile_ is None else draw(st.none() | NUMBERS)
    generation = 0 if compile_ is None else draw(NUMBERS)
    return Address(store, recording, compile_, attempt, draw(st.none() | NUMBERS), generation)


@given(addresses())
def test_parsing_undoes_printing(address: Address) -> None:
    assert parse(str(address)) == address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("run.db#2/0/1@417", "run.db#2/0/1"),
        ("run.db#2@417", "run.db#2"),
        ("run@home.db#2", "run@home.db#2"),
        ("run@home.db", "run@home.db"),
        ("postgresql://u@h/db#1/0/0@417", "postgresql://u@h/db#1/0/0"),
        ("postgresql://u@h/db#1/0/0", "postgresql://u@h/db#1/0/0"),
    ],
)
def test_an_address_without_its_event(address: str, expected: str) -> None:
    assert without_event(address) == expected


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("run.db", Address("run.db")),
        ("run.db#2", Address("run.db", 2)),
        ("run.db#2/0/1", Address("run.db", 2, "0/1")),
        ("run.db#2/0/1_3", Address("run.db", 2, "0/1", attempt=3)),
        ("run.db#2/g4/0/1_3", Address("run.db", 2, "0/1", attempt=3, generation=4)),
        ("run.db#2/0/1@417", Address("run.db", 2, "0/1", event=417)),
        ("run.db#2@417", Address("run.db", 2, event=417)),
        ("run.db#2/!0/1/0", Address("run.db", 2, "!0/1/0")),
        ("a#1/b.db#2", Address("a#1/b.db", 2)),
        ("postgresql://u@h/db#1", Address("postgresql://u@h/db", 1)),
    ],
)
def test_examples(text: str, address: Address) -> None:
    assert parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["run.db#", "run.db#x", "run.db#2/", "run.db#2/x", "run.db#-1", "run.db#2@", "#", "a#b"]
)
def test_nonsense_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(UsageError, match=r"RECORDING\[/COMPILE\]\[@EVENT\]"):
        parse(text)


@pytest.mark.parametrize("digits", ["9" * 19, "1" * 20, "1" * 5000])
def test_a_number_no_database_has_is_refused(digits: str) -> None:
    with pytest.raises(UsageError, match="too large"):
        parse(f"run.db#{digits}")


def test_digits_of_other_scripts_are_no_numbers() -> None:
    with pytest.raises(UsageError):
        parse("run.db#٣")


def test_a_file_with_a_mark_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a#1"
    path.touch()
    assert parse(str(path)) == Address(str(path))
    assert parse(f"{path}#2") == Address(str(path), 2)


def test_the_default_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(addressing.STORE_VARIABLE, raising=False)
    assert parse("") == Address("torchreel.db")
    assert parse("#3") == Address("torchreel.db", 3)
    monkeypatch.setenv(addressing.STORE_VARIABLE, "/data/fleet.db")
    assert parse("#3/0/0") == Address("/data/fleet.db", 3, "0/0")
