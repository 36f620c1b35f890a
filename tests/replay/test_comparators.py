"""The table of comparators is the one place that knows them: everyone else asks it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from tests.docs.pages import ROOT
from tests.minifier.hand_made import chain
from torchreel.errors import UnsupportedError, UsageError
from torchreel.minifier.scripts.script import compile_form
from torchreel.replay.accuracy import comparators, comparison
from torchreel.sharing.constructed.cases import construct
from torchreel.sharing.pseudonyms import Pseudonyms
from torchreel.store.failures.signature import wrong_result_signature

VALUES = wrong_result_signature("values")
SIGN = comparators.Comparator("their signs do", (0.0, 0.0), "torch.sign")
CASE = replace(chain(["sin"]), harness="accuracy")


def script(name: str) -> str:
    """The script of a case with that comparator."""
    return compile_form(replace(CASE, comparator=name), VALUES, []).text


@pytest.mark.parametrize("name", comparators.COMPARATORS)
def test_a_name_of_the_table_is_known_to_all(name: str) -> None:
    """To the comparison, the scripts, `share` and the guide."""
    one = [torch.ones(2)]
    assert comparison.differences(one, one, comparator=name) == []
    assert construct(replace(CASE, comparator=name), Pseudonyms()).comparator == name
    if comparators.COMPARATORS[name].in_script is not None:
        assert "assert_close" in script(name)
    page = (ROOT / "docs/minify.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{re.escape(name)}` \| (.*) \|$", page, re.MULTILINE)
    assert row is not None, f"docs/minify.md has no row for {name}"
    assert row[1].startswith(comparators.COMPARATORS[name].differ_when)


def test_each_name_has_a_function() -> None:
    assert comparison.DIFFER.keys() <= comparators.COMPARATORS.keys()
    for name in comparators.COMPARATORS.keys() - comparison.DIFFER.keys():
        assert isinstance(comparators.COMPARATORS[name].in_script, tuple), name
        assert not comparators.COMPARATORS[name].of, f"{name} needs a function of its own"


def test_an_unknown_one_lists_them_all() -> None:
    with pytest.raises(UsageError) as raised:
        comparators.comparator("nearly")
    for form in (*comparators.COMPARATORS, "close(RTOL, ATOL)", "MODULE:FUNCTION"):
        assert form in str(raised.value)


def test_a_new_name_reaches_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its tolerances, and the function that is applied before."""
    monkeypatch.setitem(comparators.COMPARATORS, "sign", SIGN)
    text = script("sign")
    assert "from torch.utils._pytree import tree_map_only" in text
    assert (
        "torch.testing.assert_close(tree_map_only(torch.Tensor, torch.sign, actual), "
        "tree_map_only(torch.Tensor, torch.sign, expected), rtol=0.0, atol=0.0" in text
    )
    assert construct(replace(CASE, comparator="sign"), Pseudonyms()).comparator == "sign"


def test_what_a_script_cannot_say_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(comparators.COMPARATORS, "sign", replace(SIGN, in_script=None))
    with pytest.raises(UnsupportedError, match="no form for the comparator 'sign'"):
        script("sign")


def test_a_function_of_the_users_is_called_if_its_module_was_imported() -> None:
    """For the values; nobody may share it."""
    case = replace(CASE, comparator="mine:differs", imports=("mine",))
    text = compile_form(case, VALUES, []).text
    assert "import mine\n" in text
    assert "torch.testing.assert_close(any(mine.differs(one, other) for" in text
    assert "check_stride" in compile_form(case, wrong_result_signature("stride"), []).text
    with pytest.raises(UnsupportedError, match="comparator 'mine:differs' is code"):
        script("mine:differs")
    with pytest.raises(UnsupportedError, match="a function of the program's judges it"):
        construct(replace(CASE, comparator="mine:differs"), Pseudonyms())


def _scaled() -> type[torch.Tensor]:
    """Return a subclass that no function of torch may mix with another one of this name."""

    class Scaled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if any(kind is not cls for kind in types):
                return NotImplemented
            return super().__torch_function__(func, types, args, kwargs or {})

    return Scaled


def test_subclasses_of_two_runs_are_compared_by_what_they_hold() -> None:
    one, other = torch.ones(3).as_subclass(_scaled()), torch.ones(3).as_subclass(_scaled())
    assert comparison.differences([one], [other]) == []
    (found,) = comparison.differences([one], [torch.full((3,), 2.0).as_subclass(type(other))])
    assert found.kind == "values"
