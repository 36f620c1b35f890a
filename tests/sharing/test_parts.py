"""The parts of sharing: pseudonyms, numbers that a failure needs, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.minifier.hand_made import call, case_of, ref, tensor
from torchreel.errors import NotAStore, UnsupportedError, UsageError
from torchreel.minifier.cases.case import Case
from torchreel.sharing import pseudonyms, words_of_torch
from torchreel.sharing.constructed.arguments import attribute, equation, keyword
from torchreel.sharing.constructed.cases import construct
from torchreel.sharing.constructed.scalars import Symbols
from torchreel.sharing.constructed.sources import source
from torchreel.sharing.neutral import neutralised
from torchreel.sharing.pseudonyms import Pseudonyms
from torchreel.sharing.residue import leaving
from torchreel.sharing.verify import renamed
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.store.failures.signature import (
    Signature,
    normalise_message,
    predicate_signature,
)

SECRET: Json = {"f": (0.7305812).hex()}
OTHER: Json = {"f": (0.2182837).hex()}


def _case(*literals: Json) -> Case:
    calls = [
        call(f"salary{i}", "add", ref("patient"), literal) for i, literal in enumerate(literals)
    ]
    return case_of(calls, [node.name for node in calls], patient=tensor(4, 8))


def test_names_of_a_case_become_pseudonyms_and_operators_stay() -> None:
    names = Pseudonyms()
    made = construct(_case(SECRET), names)
    assert [node.name for node in made.graph.nodes] == ["x1", "v1", "output"]
    assert made.graph.nodes[1].target == "fn:torch.add"
    assert names.names == {"x1": "patient", "v1": "salary0"}
    assert b"patient" not in made.to_bytes()


def test_only_numbers_that_the_failure_needs_stay() -> None:
    case = _case(SECRET, OTHER, 918273645, 8, 1)

    def holds(one: Case) -> bool:
        return b"0.7305812" in _numbers(one)

    found = neutralised(case, holds, 40)
    assert _numbers(found.case) == b"0.7305812 0.5 2 8 1"  # 8 is a size anyway
    assert (found.tried - found.kept, found.kept) == (2 + 1, 1)


def _numbers(case: Case) -> bytes:
    found = [node.args[1] for node in case.graph.nodes if node.is_call]  # type: ignore[index]
    plain = [float.fromhex(one["f"]) if isinstance(one, dict) else one for one in found]
    return " ".join(map(str, plain)).encode()


def test_nothing_is_replaced_where_everything_is_needed_and_runs_are_bounded() -> None:
    case = _case(*[{"f": (0.1 + i / 1000).hex()} for i in range(50)])
    found = neutralised(case, lambda one: False, 9)
    assert found.case.digest == case.digest
    assert found.runs <= 9


def test_what_leaves_is_listed() -> None:
    found = leaving(_case(SECRET, 8), Signature("crash", "run"))
    assert found.operators == ("fn:torch.add",)
    assert set(found.numbers) == {"0.7305812", "8"}
    assert set(found.sizes) >= {4, 8}


@pytest.mark.parametrize(
    "literal", [{"opaque": {"type": "company.Secret"}}, {"dtype": "salary"}, {"f": "salary"},
                {"device": "salary"}, {"n": "salary"}, {"new": 1}, {"fn": "fn:os.system"}],
)  # fmt: skip
def test_what_has_no_form_that_may_leave_is_refused(literal: Json) -> None:
    with pytest.raises(UnsupportedError, match="has no form that may leave"):
        construct(_case(literal), Pseudonyms())


def test_a_text_leaves_only_if_torch_knows_it_as_an_option() -> None:
    names = Pseudonyms()
    made = construct(_case("bilinear", "salary"), names)
    assert [node.args[1] for node in made.graph.nodes if node.is_call] == ["bilinear", "t1"]  # type: ignore[index]
    assert names.names["t1"] == "salary"


def test_equations_keywords_and_attributes_say_nothing() -> None:
    assert equation("salr,sbry->sab") == "abcd,aedf->abe"
    assert keyword("dim") == "dim"
    assert attribute("shape") == "shape"
    for refuse in (keyword, attribute):
        with pytest.raises(UnsupportedError):
            refuse("zqvkwjxb")
    with pytest.raises(UnsupportedError):
        equation("a1,b->c")


def test_a_number_by_which_a_source_is_found_is_another_one() -> None:
    def at(index: int) -> Json:
        base: Json = {"source": "LocalSource", "local_name": "customers", "is_input": True}
        return {"source": "DictGetItemSource", "base": base, "index": index}

    pseudonyms = Pseudonyms()
    made = [as_object(source(at(key), pseudonyms))["index"] for key in (3, 9021034455, 17, 17)]
    assert made == [3, 17, 18, 18]
    assert "9021034455" in pseudonyms.names.values()


def test_a_symbol_does_not_tell_the_hash_of_its_source() -> None:
    symbols = Symbols()
    assert symbols.expression("Add(s77, Mul(2, s12))") == "Add(s0, Mul(2, s1))"
    assert symbols.expression("Mul(s12, u3)") == "Mul(s1, u3)"
    for bad in ("salary", "Add(s0, salary)", "`salary`", 'Float("salary", 53)', "$salary"):
        with pytest.raises(UnsupportedError):
            symbols.expression(bad)


def test_torchs_words_are_read_without_running_it() -> None:
    assert "bilinear" in words_of_torch.options()
    assert "scatter_reduce" in words_of_torch.words().names
    assert "zqvkwjxb" not in words_of_torch.words().words


def test_a_pseudonym_in_a_message_is_normalised_as_torch_s_own_names_are() -> None:
    names = Pseudonyms()
    given = f"{names.of('n', 'hospital')}.{names.of('f', 'diagnose')}.default"
    said = "There was no fake impl registered for {}."
    wanted, seen = [
        Signature("exception", "fake", message=normalise_message(said.format(name)))
        for name in ("hospital.diagnose.default", given)
    ]
    assert renamed(wanted, names) == seen
    asked = predicate_signature("recompiles > 3")
    assert renamed(asked, names) == asked


def test_a_map_is_never_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.map.json"
    pseudonyms.write_map(path, {"x1": "patient"}, "a.db", force=False)
    with pytest.raises(UsageError, match="only key"):
        pseudonyms.write_map(path, {}, "a.db", force=False)
    assert pseudonyms.read_map(path) == {"x1": "patient"}
    pseudonyms.write_map(path, {"x1": "dose"}, "a.db", force=True)
    assert pseudonyms.read_map(path) == {"x1": "dose"}


@pytest.mark.parametrize("text", ["", "[]", '{"names": {"x1": 1}}', '{"format": "x", "names": {}}'])
def test_a_file_that_is_no_map_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(NotAStore, match="no map of pseudonyms"):
        pseudonyms.read_map(path)


def test_reading_back_touches_whole_words_alone() -> None:
    names = {"x1": "patient", "f1": "dose", "n1": "clinic"}
    answer = "x1, (x1)[0], x10, ax1, n1.f1.default, x1.shape, torch.x1_y"
    expected = "patient, (patient)[0], x10, ax1, clinic.dose.default, patient.shape, torch.x1_y"
    assert pseudonyms.read_back(answer, names) == expected
