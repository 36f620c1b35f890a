"""Real compiles against each other: each layer finds its own difference, and nothing else."""

from __future__ import annotations

import json

import pytest

from tests.analysis.diff.conftest import PROGRAMS, address, compared, differing, layers
from torchreel.analysis.diff import LayerDifference, diff
from torchreel.errors import UsageError
from torchreel.store import Store, queries

COMPARED = {"environment", "config", "frame", "symbols", "graphs", "guards", "events"}


def first(store: Store, left: str, right: str, layer: str) -> LayerDifference:
    return layers(compared(store, left, right))[layer].differences[0]


def test_the_same_program_twice_has_no_difference(store: Store) -> None:
    report = compared(store, "plain", "again")
    found = layers(report)
    assert report.same
    assert report.exit_status == 0
    assert {name for name, layer in found.items() if layer.left and layer.right} >= COMPARED
    assert found["events"].left > 50
    assert found["graphs"].left >= 2


def test_other_names_are_no_other_graph(store: Store) -> None:
    graphs = [
        queries.graphs(store, queries.compile_at(store, address(store, name)))[0]
        for name in ("plain", "renamed")
    ]
    assert graphs[0].digest != graphs[1].digest, "the test would compare a graph with itself"
    report = compared(store, "plain", "renamed")
    assert "graphs" not in differing(report)
    assert layers(report)["graphs"].left == layers(report)["graphs"].right >= 2
    assert {"symbols", "guards", "events"} <= differing(report)


def test_another_operator_is_named(store: Store) -> None:
    found = first(store, "plain", "other operator", "graphs")
    assert "torch.relu(" in found.left
    assert "torch.tanh(" in found.right
    assert "symbols" not in differing(compared(store, "plain", "other operator"))


def test_another_branch_is_a_guard_of_the_shape_environment(store: Store) -> None:
    found = layers(compared(store, "plain", "other branch"))
    guards = [d for d in found["symbols"].differences if d.what == "guard"]
    assert ("> 3" in guards[0].left, "<= 3" in guards[0].right) == (True, True)
    assert guards[0].left_at.startswith(f"{store.target}#1/0/0@")
    event = queries.event_at(store, address_of(guards[0].left_at))
    assert event.kind == "shape_env.guard"


def address_of(text: str):  # type: ignore[no-untyped-def]
    from torchreel.store import parse

    return parse(text)


def test_another_hint_is_no_other_graph(store: Store) -> None:
    report = compared(store, "plain", "other hint")
    assert "graphs" not in differing(report)
    assert "guards" not in differing(report)
    found = layers(report)["symbols"].differences
    assert [("hint 5" in d.left, "hint 7" in d.right) for d in found] == [(True, True)]


def test_a_static_size_is_another_graph_and_other_guards(store: Store) -> None:
    assert {"symbols", "graphs", "guards", "events"} <= differing(
        compared(store, "plain", "static")
    )


def test_config_shows_the_entry_and_what_it_is_otherwise(store: Store) -> None:
    found = layers(compared(store, "plain", "config"))
    (entry,) = found["config"].differences
    assert (entry.what, entry.left, entry.right) == (
        "dynamo.specialize_int", "(the default)", "True",
    )  # fmt: skip
    assert "CONSTANT_MATCH L['k']" in {d.what for d in found["guards"].differences}


def test_a_failure_on_one_side(store: Store) -> None:
    found = first(store, "plain", "failing", "failure")
    assert found.left == ""
    assert found.right.startswith("torch._dynamo.exc.Unsupported in dynamo: Observed exception")
    assert layers(compared(store, "plain", "failing"))["machine"].note == "only the left has any"


def test_the_first_event_is_named_on_both_sides_with_what_comes_before(store: Store) -> None:
    found = first(store, "plain", "other operator", "events")
    seqs = [int(at.rpartition("@")[2]) for at in (found.left_at, found.right_at)]
    ours, theirs = (
        queries.events(store, queries.compile_at(store, address(store, name)))
        for name in ("plain", "other operator")
    )
    before = [event for event in ours if event.seq < seqs[0]]
    assert found.before
    assert found.before[-1].split()[1] == before[-1].kind or before
    assert {seqs[0]} <= {event.seq for event in ours}
    assert {seqs[1]} <= {event.seq for event in theirs}


def test_a_compile_on_one_side_only(store: Store) -> None:
    report = compared(store, "plain", "recompiled")
    (pair,) = report.recordings
    assert [side.compile.compile_id for side in pair.only_right] == ["0/1"]
    assert pair.only_left == ()
    assert not report.same
    assert [p.left.compile.compile_id for p in pair.compiles] == ["0/0"]


def test_two_compiles_of_one_recording(store: Store) -> None:
    sides = [(store, address(store, "recompiled", name)) for name in ("0/0", "0/1")]
    found = layers(diff(*sides))
    assert found["symbols"].differences
    assert found["events"].differences[0].left.splitlines()[0] == "frame.cache"
    assert found["events"].differences[0].before == ()


def test_a_compile_against_a_recording_finds_its_counterpart(store: Store) -> None:
    report = diff((store, address(store, "recompiled", "0/0")), (store, address(store, "plain")))
    (pair,) = report.recordings
    assert [(p.left.compile.compile_id, p.right.compile.compile_id) for p in pair.compiles] == [
        ("0/0", "0/0")
    ]
    assert pair.only_left == pair.only_right == ()


def test_layers_can_be_chosen(store: Store) -> None:
    assert list(layers(compared(store, "plain", "other operator", "guards", "config"))) == [
        "config", "guards",
    ]  # fmt: skip
    assert compared(store, "plain", "other operator", "symbols").same
    assert not compared(store, "plain", "other operator", "graphs").same


def test_another_name_of_a_layer_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="no layer 'graph': the layers are environment, "):
        compared(store, "plain", "again", "graph")


def test_a_diff_that_compared_nothing_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="nothing was compared"):
        compared(store, "plain", "again", "code")


def test_a_report_is_json(store: Store) -> None:
    for name in PROGRAMS:
        text = json.dumps(compared(store, "plain", name).to_json())
        assert json.loads(text)["same"] is (name in ("plain", "again"))
