"""A replay with one thing changed says what that changed, and nothing else is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.cli.stores import failing
from tests.replay.programs import UNCACHED, record
from torchreel.errors import UntrustedError, UsageError
from torchreel.replay import Verdict, replay
from torchreel.replay.child.checkpoint_request import Request
from torchreel.replay.child.checks import check_config
from torchreel.replay.compare.rules import excuses, without
from torchreel.replay.compare.verdict import DIVERGED, IDENTICAL, REFUSED
from torchreel.replay.processes import launch
from torchreel.replay.what_if import Changes, applied, changes, concluded
from torchreel.store import Store, queries
from torchreel.store.records import Event

PROGRAM = "torch.compile(lambda x: (x.sin() + 1).sum(0), dynamic=True)(torch.randn(5, 8))"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("what_if") / "run.db"
    assert record(path, "small", source=PROGRAM, **UNCACHED) == 0
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path, write=True) as store:
        yield store


def with_change(store: Store, *config: str, **other: object) -> Verdict:
    (compile,) = queries.compiles(store, 1)
    return replay(store, compile, changes=changes(config, **other))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_config_entry_that_decides_nothing_here_changes_nothing(store: Store) -> None:
    verdict = with_change(store, "inductor.max_autotune_gemm_search_space='EXHAUSTIVE'")
    assert (verdict.verdict, verdict.exit_status) == ("unchanged", 0)
    assert sum(row.identical for row in verdict.compared) > 20
    assert queries.replays(store, queries.compiles(store, 1)[0])[-1].verdict == "unchanged"


@pytest.mark.slow
def test_a_config_entry_that_decides_something_is_seen_in_the_code(store: Store) -> None:
    verdict = with_change(store, "inductor.cpp.simdlen=0")
    assert (verdict.verdict, verdict.exit_status) == ("changed", 1)
    assert verdict.detail.startswith("with inductor.cpp.simdlen=0, at event ")
    rows = {(row.kind, row.stage): row.agrees for row in verdict.compared}
    assert not rows["output code", "codegen"]
    assert rows["graph", "post_grad"]


@pytest.mark.slow
def test_another_backend_stops_where_it_ends(store: Store) -> None:
    verdict = with_change(store, backend="aot_eager")
    assert verdict.verdict == "changed"
    rows = {row.stage: row for row in verdict.compared if row.kind == "graph"}
    assert (rows["post_grad"].recorded, rows["post_grad"].replayed) == (1, 0)


def test_a_device_that_is_nowhere_to_be_asked_is_refused(store: Store) -> None:
    device = "xpu" if torch.backends.mps.is_available() else "mps"  # no machine has both
    verdict = with_change(store, map_device=[f"cpu={device}"])
    assert verdict.exit_status == 3
    told = f"the graph is to be moved to {device}, the recording has no facts"
    assert verdict.detail.startswith(told)


@pytest.mark.slow
def test_another_interpreter_replays(store: Store, tmp_path: Path) -> None:
    import sys

    other, mark = tmp_path / "python", tmp_path / "was run"
    other.write_text(f'#!/bin/sh\ntouch "{mark}"\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    verdict = with_change(store, python=str(other))
    assert (verdict.verdict, mark.exists()) == ("unchanged", True)


def test_another_interpreter_has_a_torch_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where torchreel is installed beside torch, its folder would put that torch first."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    packages = tmp_path / "site-packages"
    (packages / "torch").mkdir(parents=True)
    monkeypatch.setattr(launch, "__file__", str(packages / "torchreel/replay/processes/launch.py"))
    asked = Request("c", "r", "s", 1, "graph")
    assert launch._environment(asked)["PYTHONPATH"] == str(packages)
    assert launch._environment(replace(asked, python="/other/python"))["PYTHONPATH"] == ""
    (packages / "torch").rmdir()
    assert launch._environment(replace(asked, python="/other"))["PYTHONPATH"] == str(packages)


def test_an_interpreter_without_torchreel_is_refused_with_the_remedy(
    store: Store, tmp_path: Path
) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 'No module named torchreel' >&2\nexit 1\n")
    other.chmod(0o755)
    verdict = with_change(store, python=str(other))
    assert verdict.exit_status == 3
    assert "No module named torchreel" in verdict.detail
    assert f"{other} -m pip install torchreel" in verdict.detail


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": ["max_fusion_size=1"]}, "takes MODULE.NAME=VALUE"),
        ({"config": ["inductor.max_fusion_size"]}, "takes MODULE.NAME=VALUE"),
        ({"config": ["torch.os=1"]}, "with one of dynamo, functorch, inductor, fx"),
        ({"config": ["inductor.x=os.system('id')"]}, "no Python literal"),
        ({"config": ["inductor.x=" + "(" * 5000]}, "no Python literal"),
        ({"config": ["inductor.x={1, 2}"]}, "no Python literal"),
        ({"map_device": ["cuda"]}, "takes OLD=NEW"),
        ({"python": "/no/such/python"}, "is no program"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said(options: dict[str, list[str]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        changes(**options)  # type: ignore[arg-type]


def test_only_a_checkpoint_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Store.open(path, create=True).close()
    asked = changes(["inductor.a=1"])
    with Store.open(failing(path)) as store:
        compile = queries.compiles(store, 1)[0]
        with pytest.raises(UsageError, match="graph or aot"):
            replay(store, compile, "shapes", changes=asked)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("inductor.fusion", 1, "has no config entry 'inductor.fusion'"),
        ("inductor.max_fusion_size", "a", "is of type int .64 by default., not str"),
        ("inductor.max_fusion_size", True, "is of type int .64 by default., not bool"),
        ("inductor.fx_graph_cache", True, "A replay sets inductor.fx_graph_cache itself"),
    ],
)
def test_torch_has_to_have_such_an_entry(name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_config([(name, value)], trust=True)


def test_an_entry_that_leads_outside_needs_trust() -> None:
    entry = ("inductor.cpp.cxx", {"t": [None, "/bin/sh"]})
    with pytest.raises(UntrustedError, match="add --trust"):
        check_config([entry], trust=False)
    check_config([entry], trust=True)
    check_config([("inductor.max_fusion_size", 1)], trust=False)


def test_what_another_torch_reports_elsewhere_in_its_files_is_the_same() -> None:
    event = Event(
        1, 7, 1, "joint", "artifact", "graph", 0, {"lineno": 2625, "other": 1}, None, None
    )
    line = [e for e in excuses(frozenset({"version"})) if e.covers(event) and e.fields]
    assert [without(event.data, e.fields) for e in line] == [{"other": 1}]
    assert not [e for e in excuses() if e.covers(event) and e.fields]


def document(**members: object) -> bytes:
    return json.dumps({"entry": "graph", "config": [], "extra": {}, **members}).encode()


def test_a_change_touches_nothing_else() -> None:
    entries = [{"module": "inductor", "key": key, "value": 1} for key in ("a", "b")]
    before = document(
        config=entries, extra={"backend": "inductor", "options": [1], "compile_id": "0/0"}
    )
    after = json.loads(applied(before, changes(["inductor.b=(2, 0.5)"], "eager")))
    assert after["config"][0] == entries[0]
    assert after["config"][1]["value"] == {"t": [2, {"f": "0x1.0000000000000p-1"}]}
    assert len(after["config"]) == 2
    assert after["extra"] == {"backend": "eager", "options": [], "compile_id": "0/0"}
    assert applied(before, Changes()) == before


def test_a_device_is_mapped_wherever_it_stands() -> None:
    graph = {
        "nodes": [{"args": [{"device": "cuda:1"}], "target": "cuda"}],
        "inputs": [{"device": "cpu"}],
    }
    after = json.loads(applied(document(graph=graph), changes(map_device=["cuda=meta"])))["graph"]
    assert after["nodes"] == [{"args": [{"device": "meta"}], "target": "cuda"}]
    assert after["inputs"] == [{"device": "cpu"}]


def test_the_words_of_the_verdict() -> None:
    asked = changes(["inductor.a=1"])
    kinds = [concluded(Verdict(kind, "graph"), asked) for kind in (IDENTICAL, DIVERGED, REFUSED)]
    assert [(v.verdict, v.exit_status) for v in kinds] == [
        ("unchanged", 0), ("changed", 1), ("refused", 3),
    ]  # fmt: skip
