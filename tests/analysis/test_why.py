"""Why: what recompiles have in common, what is read for their stories, and what they do without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.rows import add_compile, add_event, add_recording
from torchreel.analysis.why import cache_keys, frames
from torchreel.analysis.why.grouped_causes import key
from torchreel.analysis.why.guards import Background
from torchreel.analysis.why.questions import why
from torchreel.events.frames import CacheMiss
from torchreel.events.nondeterminism import CacheOutcome
from torchreel.store import Json, Store, Writer, parse, queries
from torchreel.store.records import Event

SIZE = "tensor 'x' size mismatch at index 0. expected 3, actual 4"
GUARD: Json = {
    "expression": "L['x']", "source": None, "types": ["TENSOR_MATCH"], "code": ["check_tensor()"],
    "class": None, "portable": None, "object": None, "arguments": None,
}  # fmt: skip


def _miss(said: str) -> dict[str, Json]:
    return {"reason": said, "guards": [said], "source": "L['x']", "held": 1}


# -- causes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (SIZE, SIZE.replace("actual 4", "actual 5"), True),
        (SIZE, SIZE.replace("index 0", "index 1"), False),
        ("len(L['text']) == 3", "len(L['text']) == 41", True),
        ("L['n'] == -1", "L['n'] == 2.5e-05", True),
        ("L['sizes'] == [1, 2]", "L['sizes'] == [3, 4]", True),
        ("L['name'] == 'x1'", "L['name'] == 'x2'", True),
        ("L['x1'] == 3", "L['x2'] == 3", False),
        ("2 <= L['x'].size()[0]", "16 <= L['x'].size()[0]", True),
        ("2 <= L['x'].size()[0]", "2 <= L['x'].size()[1]", False),
        ("L['self'].layers[0].on == 1", "L['self'].layers[-12].on == 1", False),
        ("___check_obj_id(L['f'], 140214)", "___check_obj_id(L['f'], 93115)", True),
    ],
)
def test_the_values_in_a_guard_make_no_cause_and_its_names_do(
    one: str, other: str, *, same: bool
) -> None:
    keys = {
        key(Event(1, 1, 1, None, CacheMiss.kind, "0/0", 1, _miss(said), None), "f", None)
        for said in (one, other)
    }
    assert len(keys) == (1 if same else 2)


# -- recompiles -----------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def _recompiles(path: Path, times: int, *, has_hole: bool = False) -> None:
    """Write a recording of a frame whose first cache entry could not be reused some times."""
    with Store.open(path, create=True) as store, store.writer() as w:
        number = add_recording(w)
        first = add_compile(w, number, "0/0")
        _event(w, number, 1, first, "guards.guard", GUARD, "TENSOR_MATCH")
        made: Json = {"env": 1, "settings": {}, "validation": False}
        _event(w, number, 2, first, "shape_env.create", made)
        if has_hole:
            lost: Json = {"env": 1, "symbol": "s0", "old": [2, 8], "new": [2, 4]}
            _event(w, number, 3, first, "shape_env.range", lost)
        for time in range(1, times + 1):
            row = add_compile(w, number, f"0/{time}")
            _event(w, number, 3 + time, row, CacheMiss.kind, _miss(SIZE), "0/0")


def _event(
    w: Writer, recording: int, seq: int, compile: int, kind: str, data: Json, name: str = ""
) -> None:
    add_event(w, recording, seq, compile_id=compile, kind=kind, data=data, name=name)


def test_what_recompiles_share_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, made = [], []

    class Counted(Background):
        def __init__(self, log):  # type: ignore[no-untyped-def]
            made.append(log.address)
            super().__init__(log)

    def compiles(*given):  # type: ignore[no-untyped-def]
        read.append(given)
        return read_compiles(*given)

    read_compiles = queries.compiles
    monkeypatch.setattr(queries, "compiles", compiles)
    monkeypatch.setattr(frames, "Background", Counted)
    _recompiles(path, 12)
    with Store.open(path) as store:
        stories = why(store, parse(f"{path}#1"), "recompile").stories
    assert [story.facts["entry"] for story in stories] == [f"{path}#1/0/0"] * 12
    assert len(read) == 2  # those that the address covers, and those by name
    assert len(made) == len(set(made)) == 13


def test_a_hole_in_the_log_of_a_shape_env_is_a_note(path: Path) -> None:
    _recompiles(path, 1, has_hole=True)
    with Store.open(path) as store:
        (story,) = why(store, parse(f"{path}#1"), "recompile").stories
        (guard,) = why(store, parse(f"{path}#1/0/0"), "TENSOR_MATCH").stories
    assert [step.kind for step in story.steps] == ["guards.guard", CacheMiss.kind]
    assert any(f"{path}#1/0/0 are not known: " in note for note in story.notes)
    assert len(guard.notes) == 1


# -- caches ---------------------------------------------------------------------------------------


def test_the_lookup_of_the_same_key_is_found_without_the_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(path, create=True) as store, store.writer() as w:
        number = add_recording(w)
        for place in range(20):
            row = add_compile(w, number, f"{place}/0", frame_name=f"f{place}")
            asked: Json = {"outcome": "miss", "key": f"key {place // 2}", "reason": None}
            _event(w, number, place + 1, row, CacheOutcome.kind, asked, "FxGraphCache")
    compared = []

    def of_one_compile(*lookups):  # type: ignore[no-untyped-def]
        compared.append(lookups)
        return is_of_one_compile(*lookups)

    is_of_one_compile = cache_keys._of_one_compile
    monkeypatch.setattr(cache_keys, "_of_one_compile", of_one_compile)
    with Store.open(path) as store:
        found = cache_keys.why_cache(store, parse(f"{path}#1"))
        assert [story.nearest and story.nearest.seq for story in found[1::2]] == [*range(1, 20, 2)]
        compared.clear()
        known = [story.lookup for story in found]
        cache_keys.stories_beside(known[1::2], known[::2])
    assert len(compared) == 10
