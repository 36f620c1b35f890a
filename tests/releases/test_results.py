"""What follows from the outcomes of several releases, and what does not."""

from __future__ import annotations

import pytest

from torchreel.errors import DamagedStore
from torchreel.releases.results import (
    Fate,
    Rechecked,
    Run,
    State,
    Survey,
    Tried,
    in_order,
    order_of,
)

LETTERS: dict[str, State] = {"F": "same", "P": "passes", "o": "other", "u": "unjudged"}
VERSIONS = ("2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0")


def survey(letters: str) -> Survey:
    """A survey in which each release does what its letter says."""
    states = [LETTERS[letter] for letter in letters]
    tried = [Tried(v, (Run(s, ""),)) for v, s in zip(VERSIONS, states, strict=False)]
    return Survey("2.13.0", tuple(tried))


@pytest.mark.parametrize(
    ("letters", "lines"),
    [
        (
            "PPFFP",
            [
                "first bad: 2.11.0 (2.10.0 passes)",
                "first fixed: 2.13.0 (2.12.1 fails)",
                "torch 2.13.0, which recorded it, does not show it here",
            ],
        ),
        ("PPPPF", ["first bad: 2.13.0 (2.12.1 passes)", "not fixed up to 2.13.0"]),
        (
            "FFPPP",
            [
                "first bad: 2.9.1 or earlier (no earlier release that passes was tried)",
                "first fixed: 2.11.0 (2.10.0 fails)",
                "torch 2.13.0, which recorded it, does not show it here",
            ],
        ),
        (
            "PoFuF",
            [
                "first bad: 2.11.0 or earlier, after 2.9.1, which passes (not known of 2.10.0)",
                "not fixed up to 2.13.0",
            ],
        ),
        (
            "PFuPF",
            [
                "first bad: 2.10.0 (2.9.1 passes)",
                "first fixed: 2.12.1 or earlier, after 2.10.0 (not known of 2.11.0)",
                "first bad: 2.13.0 (2.12.1 passes)",
                "not fixed up to 2.13.0",
            ],
        ),
        (
            "PFFFu",
            [
                "first bad: 2.10.0 (2.9.1 passes)",
                "not fixed up to 2.12.1 (not known of 2.13.0)",
                "torch 2.13.0, which recorded it, does not show it here",
            ],
        ),
        ("PPPPP", ["no release that was tried shows the failure here, so nothing follows"]),
        ("oouuo", ["no release that was tried shows the failure here, so nothing follows"]),
    ],
)
def test_conclusions_claim_no_more_than_was_seen(letters: str, lines: list[str]) -> None:
    assert survey(letters).conclusions() == lines


@pytest.mark.parametrize(
    ("letters", "state", "result"),
    [
        ("FFF", "same", "the same failure"),
        ("PFP", "same", "the same failure in 1 of 3 runs"),
        ("PPo", "other", "another failure"),
        ("PoP", "other", "another failure"),
        ("Pu", "unjudged", "can't be judged"),
        ("PPP", "passes", "passes"),
        ("", "unjudged", "can't be judged"),
    ],
)
def test_runs_that_disagree_are_no_pass(letters: str, state: State, result: str) -> None:
    tried = Tried("2.13.0", tuple(Run(LETTERS[letter], "") for letter in letters))
    assert (tried.state, tried.result) == (state, result)


def test_versions_sort_by_number_and_builds_before_a_release_come_first() -> None:
    names = ["2.9.1", "2.10.0", "2.15.0a0+git1", "2.15.0", "2.15.0.post1", "3.0.0"]
    shuffled = [names[i] for i in (3, 0, 5, 2, 4, 1)]
    assert sorted(shuffled, key=order_of) == names
    assert [one.torch for one in in_order([Tried("2.10.0"), Tried("2.9.1")])] == ["2.9.1", "2.10.0"]


def test_a_survey_survives_the_store() -> None:
    found = survey("PoFuF")
    assert Survey.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    "data", [None, [], {}, {"recorded": "2.13", "tried": [{"torch": 3}]}, {"tried": "x"}]
)
def test_what_is_no_survey_is_damage(data: object) -> None:
    with pytest.raises(DamagedStore, match="releases"):
        Survey.from_json(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("new", "here", "state"),
    [
        (("same",), None, "there"),
        (("passes", "passes", "same"), None, "there"),
        (("other",), None, "other"),
        (("unjudged",), None, "unjudged"),
        ((), None, "unjudged"),
        (("passes",) * 3, None, "unjudged"),
        (("passes",) * 3, ("same",) * 3, "fixed"),
        (("passes",) * 3, ("passes",) * 3, "unjudged"),
        (("passes",) * 3, ("other",), "unjudged"),
    ],
)
def test_fixed_needs_a_script_that_fails_here(
    new: tuple[State, ...], here: tuple[State, ...] | None, state: Fate
) -> None:
    def tried(states: tuple[State, ...]) -> Tried:
        return Tried("2.13.0", tuple(Run(each, f"it {each}") for each in states), "no Python")

    found = Rechecked(tried(new), tried(here) if here is not None else None)
    assert found.state == state
    if here == ("passes",) * 3:
        assert found.detail.startswith("it passes, but with torch 2.13.0, which is installed here")
