"""The layers that are names with values: environment, machine, config, frame, failure.

Lives here: what of a recording or a compile is such a fact, and the comparison of two tables of
them.  Not here: what has an order (`graphs`, `events`, ...).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchreel.analysis.diff.report import (
    ABSENT,
    DiffSide,
    LayerDiff,
    LayerDifference,
    modes_differ,
)
from torchreel.analysis.diff.text import plain, text_difference
from torchreel.events.nondeterminism import (
    Accelerator,
    DeviceProperties,
    Machine,
    TritonBuild,
    VectorISA,
)
from torchreel.replay.compare.normalise import canonical_text
from torchreel.store import queries
from torchreel.store.configs import ConfigEntry
from torchreel.store.database import Store
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.store.processes.liveness import PROCESS
from torchreel.store.records import Compile, Failure, Recording

MACHINE = (
    Machine.kind,
    DeviceProperties.kind,
    TritonBuild.kind,
    VectorISA.kind,
    Accelerator.kind,
)
"""Kinds of events that say what the compiler found of the machine: facts, not steps."""


_DRAWN = frozenset({"seed"})
"""Facts that a process draws at random when it begins, and that no compile depends on."""


@dataclass(frozen=True)
class DiffFact:
    """A value, with the event that it is from."""

    text: str
    seq: int | None = None


Facts = Mapping[str, DiffFact]


def compare_facts(
    layer: str, left: Facts, right: Facts, sides: Sequence[DiffSide] = ()
) -> LayerDiff:
    """Return the facts that differ, in the order of their names on the left.

    A side without any did not come so far, or has none recorded: that is a note, not a difference.
    """
    if bool(left) != bool(right):
        alone = "left" if left else "right"
        return LayerDiff(layer, len(left), len(right), note=f"only the {alone} has any")
    names = list(dict.fromkeys([*left, *right]))
    found = tuple(
        _difference(name, left.get(name), right.get(name), sides)
        for name in names
        if _text(left.get(name)) != _text(right.get(name))
    )
    return LayerDiff(layer, len(left), len(right), found)


def _text(fact: DiffFact | None) -> str | None:
    return None if fact is None else fact.text


def _difference(
    name: str, left: DiffFact | None, right: DiffFact | None, sides: Sequence[DiffSide]
) -> LayerDifference:
    texts = [ABSENT if fact is None else fact.text for fact in (left, right)]
    places = [
        side.at(fact.seq) if fact is not None and fact.seq is not None else ""
        for side, fact in zip(sides, (left, right), strict=False)
    ] or ["", ""]
    return LayerDifference(name, texts[0], texts[1], places[0], places[1])


# -- environment, machine -------------------------------------------------------------------------


def environment(left: tuple[Store, Recording], right: tuple[Store, Recording]) -> LayerDiff:
    """Compare the environments of two recordings: machine, versions, variables and program."""
    return compare_facts("environment", _environment(*left), _environment(*right))


def _environment(store: Store, recording: Recording) -> Facts:
    argv = recording.argv if isinstance(recording.argv, list) else [recording.argv]
    found = {"program": DiffFact(" ".join(map(str, argv)))}
    if recording.rank is not None:
        found["rank"] = DiffFact(str(recording.rank))
    known = queries.environment(store, recording.id)
    return found | {key: DiffFact(value) for key, value in known.items() if key != PROCESS}


def machine(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Compare the facts about the machine that the compiler found in two compiles."""
    return compare_facts("machine", _machine(left), _machine(right), (left, right))


def _machine(side: DiffSide) -> Facts:
    found: dict[str, DiffFact] = {}
    for kind in MACHINE:
        for event in queries.events(side.store, side.compile, kind):
            data = event.data if isinstance(event.data, Mapping) else {"": event.data}
            name = kind.removeprefix("nondeterminism.")
            where = name if name == "machine" else f"{name} {event.name}"
            found |= {
                f"{where} {key}": DiffFact(plain(value), event.seq)
                for key, value in data.items()
                if key not in _DRAWN
            }
    return found


# -- config ---------------------------------------------------------------------------------------


def config(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Return the config, the options and the ambient state of two compiles."""
    found = compare_facts("config", config_facts(left), config_facts(right), (left, right))
    shown = tuple(_with_default(difference) for difference in found.differences)
    return LayerDiff(found.layer, found.left, found.right, shown)


def _with_default(found: LayerDifference) -> LayerDifference:
    left, right = (text or "(the default)" for text in (found.left, found.right))
    return LayerDifference(found.what, left, right)


def config_facts(side: DiffSide) -> Facts:
    """Return the config that was not the default, the options of the call, and the ambient
    state.
    """
    entries = queries.config(side.store, side.compile.config_id)
    known = queries.checkpoints(side.store, side.compile)
    document = next((row.digest for row in known if row.entry == "graph"), None)
    given = {} if document is None else facts_of_checkpoint(side.store.read_blob(document))
    return config_table(side.compile, entries, given)


def config_table(compile: Compile, entries: Sequence[ConfigEntry], given: Facts) -> Facts:
    """Return the facts of `config_facts`, from config entries and facts that were read already."""
    named = {f"{e.module}.{e.key}": DiffFact(spelling.argument(e.value, str)) for e in entries}
    found = {**named, **given}
    return {"backend": DiffFact(compile.backend or ""), **found} if found else {}


def facts_of_checkpoint(data: bytes) -> Facts:
    """Return the facts that only the Dynamo graph's checkpoint holds: options, ambient state."""
    doc = _parsed(data)
    extra, ambient = as_object(doc.get("extra")), as_object(doc.get("ambient"))
    given = [o for o in list_only(extra.get("options")) if isinstance(o, Mapping)]
    return {
        **{f"options {o.get('key')}": DiffFact(_spelled(o.get("value"))) for o in given},
        **{f"ambient {name}": DiffFact(_spelled(tree)) for name, tree in ambient.items()},
    }


def _spelled(tree: Json) -> str:
    return spelling.argument(tree, str)


def _parsed(data: bytes) -> Mapping[str, Json]:
    try:
        return as_object(parse_json(data))
    except (ValueError, RecursionError):
        return {}


# -- frame ----------------------------------------------------------------------------------------


def frame(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Compare the frames of two compiles, their progress and their ends."""
    ours, theirs = _frame(left), _frame(right)
    if modes_differ(left, right):  # flight mode notes fewer stages
        ours, theirs = ({**facts, "stages": DiffFact("")} for facts in (ours, theirs))
    found = compare_facts("frame", ours, theirs, (left, right))
    shown = tuple(
        text_difference("source", difference.left, difference.right)
        if difference.what == "source" else difference
        for difference in found.differences
    )  # fmt: skip
    return LayerDiff(found.layer, found.left, found.right, shown)


def _frame(side: DiffSide) -> Facts:
    row = side.compile
    stages = [
        f"{stage.stage} {stage.partition}".rstrip() + (f" {stage.status}" * (stage.status != "ok"))
        for stage in queries.stages(side.store, row)
    ]
    source = "" if row.frame_source is None else _source(side.store.read_blob(row.frame_source))
    return {
        "name": DiffFact(row.frame_name),
        "place": DiffFact(f"{row.frame_file}:{row.frame_line}"),
        "source": DiffFact(source),
        "attempt": DiffFact(str(row.attempt)),
        "status": DiffFact(row.status),
        "stages": DiffFact(", ".join(stages)),
    }


def _source(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# -- failure --------------------------------------------------------------------------------------


def failure(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Compare the failures of two compiles: the same signature is the same failure."""
    ours, theirs = (queries.failure_of(side.store, side.compile) for side in (left, right))
    counts = int(ours is not None), int(theirs is not None)
    if ours is not None and theirs is not None and ours.signature.matches(theirs.signature):
        return LayerDiff("failure", *counts)
    left_text, right_text = _failed(ours), _failed(theirs)
    differs = (LayerDifference("failure", left_text, right_text),) if any(counts) else ()
    return LayerDiff("failure", *counts, differs)


def _failed(found: Failure | None) -> str:
    if found is None:
        return ABSENT
    what = found.exception_type or found.failure_class
    return f"{what} in {found.stage}: {canonical_text(found.message).strip()}"
