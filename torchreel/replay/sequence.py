"""Replays the frames of a recording: one alone, or all in their recorded order.

Lives here: from compiles and their bundles to what a process did of them.  Not here: that process
(`frame_child`), the verdicts (`frame_verdicts`).  Called by `replay`, for the entry 'frame', and by
`torchreel replay --sequence`.

Both are the same: a recompile needs what was compiled of its code before it, so a single frame is
the end of a sequence whose beginning is not recorded.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.events.aot import LateBackward
from torchreel.events.frames import CacheMiss
from torchreel.events.guards import Guard
from torchreel.events.output_graph import Bytecode
from torchreel.events.scalars import ScalarItem
from torchreel.events.shape_env import BackedSymbol
from torchreel.replay.child import frame_child
from torchreel.replay.child.frame_child import SOURCE_GUARD, FrameRequest, SequenceStep
from torchreel.replay.compare import time_travel
from torchreel.replay.compare.lanes import allowed_of
from torchreel.replay.compare.rules import EARLIER
from torchreel.replay.compare.time_travel import Sought, Until
from torchreel.replay.compare.verdict import Verdict
from torchreel.replay.frame_verdicts import (
    Attempts,
    export_around,
    in_order,
    is_export,
    judge,
    refused,
    without_dynamo,
)
from torchreel.replay.imposed import fake_cache, pattern_libraries, remainders
from torchreel.replay.imposed.facts import IN_ORDER, facts_of
from torchreel.replay.imposed.operators import operators_called
from torchreel.replay.many import Row
from torchreel.replay.options import (
    ReplayOptions,
    backward_that_failed,
    check_version,
    had_backward,
    hang_limit,
    known_classes,
    note,
    target_of,
)
from torchreel.replay.processes.launch import DEFAULT_TIMEOUT, launch
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile, FrameBundle, Recording

LATE_BACKWARD = LateBackward.kind


def replay_frame(store: Store, compile: Compile, options: ReplayOptions) -> Verdict:
    """Let Dynamo trace the frame of a compile again, and compare everything.

    Raises UntrustedError without trust, UnsupportedError when the frame was not kept.
    """
    _check_trust(store, options)
    groups = _groups(store, compile.recording_id)
    places = [n for n, group in enumerate(groups) if compile.id in {r.id for r in group.rows}]
    if not places:
        raise UnsupportedError(without_dynamo(store, compile))
    place = places[0]
    wanted = groups[place]
    if wanted.bundle is None or wanted.bundle.digest is None:
        raise UnsupportedError(_without_bundle(wanted))
    sought = _sought(store, wanted, options.until) if options.until else None
    history = [group for group in _before(groups[:place], wanted) if _usable(group)]
    missing = (wanted.last.frame_compile_id or 0) - len(history)
    if missing > 0:
        options = replace(options, allow=options.allow | {EARLIER})
    verdict = _replay(store, [*history, wanted], {wanted.last.id}, options, sought)[wanted.last.id]
    if missing > 0:
        note = (
            f"{missing} earlier compiles of this code were not kept, so its cache was empty: "
            "record with --frames all"
        )
        verdict = replace(verdict, notes=(*verdict.notes, note))
    return verdict


def _sought(store: Store, group: Attempts, until: Until) -> Sought:
    """Return the data by which the child stops in a frame."""
    target = time_travel.of_frame(store, group.rows, until)
    log = (
        time_travel.event_log_of(store, group.rows, time_travel.FRAME)
        if until.interactive
        else None
    )
    allow = tuple(allowed_of(store, group.last))
    return Sought(until.stage, until.partition, target, (), allow, until.interactive, log)


def replay_sequence(
    store: Store,
    recording: Recording,
    *,
    trust: bool = False,
    imports: Sequence[str] = (),
    timeout: float | None = None,
    memory: int | None = None,
    allow: Iterable[str] = (),
    listener: Callable[[str], None] | None = None,
) -> list[Row]:
    """Replay every frame of a recording in one process, in the order in which they were compiled.

    A compile whose frame was not kept is refused, and the sequence goes on without it; `timeout` in
    seconds and `memory` in bytes are for all.  Raises UntrustedError without trust.
    """
    options = ReplayOptions(
        trust, tuple(imports), timeout or DEFAULT_TIMEOUT, known_classes(allow), memory=memory
    )
    _check_trust(store, options)
    groups = _groups(store, recording.id)
    if groups:
        check_version(store, groups[0].last, options)
    usable = [group for group in groups if _usable(group)]
    if listener is not None:
        listener(f"replaying {len(usable)} frames of {store.target}#{recording.id} in one process")
    found = _replay(store, usable, {group.last.id for group in usable}, options) if usable else {}
    rows = [
        Row(group.last, found.get(group.last.id) or refused(_without_bundle(group)))
        for group in groups
    ]
    for row in rows:
        note(store, row.compile, row.verdict)
    return rows


def _check_trust(store: Store, options: ReplayOptions) -> None:
    if not options.trust:
        raise UntrustedError(
            f"A frame is a pickle: to replay it runs code from {store.target}. If you trust who "
            "made it, add --trust."
        )


# -- what there is to replay ----------------------------------------------------------------------


def _groups(store: Store, recording_id: int) -> list[Attempts]:
    """Return the compiles of a recording in order, each with its attempts and its bundle.

    Compiles that did not come through Dynamo are left out.
    """
    compiles = queries.compiles(store, recording_id)
    found: dict[tuple[int, str], list[Compile]] = {}
    exports = {row.id: [row] for row in compiles if is_export(row)}
    for row in compiles:
        export = export_around(compiles, row)
        if export is not None and export.id != row.id:
            exports[export.id].append(row)
        elif export is not None:
            found[row.id, ""] = exports[row.id]
        elif row.frame_id is not None:
            found.setdefault((row.generation, row.compile_id), []).append(row)
    return [Attempts(in_order(rows), _bundle(store, rows)) for rows in found.values()]


def _bundle(store: Store, rows: Sequence[Compile]) -> FrameBundle | None:
    """Return the first bundle among the attempts of a frame; None if it was not kept.

    The first attempt has it when all frames are kept, the last when only failing ones are.
    """
    bundles = [queries.frame_bundle(store, row) for row in rows]
    return next((bundle for bundle in bundles if bundle is not None), None)


def _usable(group: Attempts) -> bool:
    return group.bundle is not None and group.bundle.digest is not None


def _before(groups: Sequence[Attempts], wanted: Attempts) -> list[Attempts]:
    """Return the earlier compiles of the same frame, which left their code in its cache.

    After a reset of Dynamo the numbers begin again: the latest of each is meant.
    """
    found: list[Attempts] = []
    number = wanted.last.frame_compile_id or 0
    for group in reversed(groups):
        if group.last.frame_id == wanted.last.frame_id and number > 0:
            found.append(group)
            number = group.last.frame_compile_id or 0
    return found[::-1]


def _without_bundle(group: Attempts) -> str:
    place, bundle = group.last.place, group.bundle
    if bundle is None:
        return (
            f"The frame of compile {place} was not kept: record it with --frames all, or failing "
            "for compiles that fail."
        )
    return f"The frame of compile {place} could not be kept: {bundle.reason}."


# -- the replay -----------------------------------------------------------------------------------


def _replay(
    store: Store,
    groups: Sequence[Attempts],
    wanted: set[int],
    options: ReplayOptions,
    sought: Sought | None = None,
) -> dict[int, Verdict]:
    """Return the verdicts on `wanted`, by the id of their last attempts."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchreel-frames-")))
        target = target_of(store, stack)
        steps = [_step(store, group, folder, group.last.id in wanted) for group in groups]
        steps = [
            replace(step, traced_later=sorted(_traced(steps[place:])))
            for place, step in enumerate(steps, 1)
        ]
        request = FrameRequest(
            steps=steps,
            report=str(folder / "report.json"),
            store=str(Path(target).absolute()) if "://" not in target else target,
            replay_of=next(group.last.id for group in groups if group.last.id in wanted),
            trust=options.trust,
            imports=options.imports,
            compile_timeout=_hang_limit(store, groups, wanted, options.timeout),
            facts=_facts(store, groups),
            sought=None if sought is None else asdict(sought),
        )
        ended = launch(request, options.timeout, frame_child, options.memory)
        outcomes = (
            ended.report.outcomes if isinstance(ended.report, frame_child.FrameReport) else {}
        )
        again = _replayed(request.store, ended.recording_id)
        return {
            group.last.id: judge(store, group, request.store, again, ended, outcomes, options)
            for group in groups
            if group.last.id in wanted
        }


def _traced(steps: Sequence[SequenceStep]) -> set[str]:
    """Return the libraries of patterns that Inductor traced in these compiles."""
    return {name for step in steps for name in step.traced_patterns}


def _hang_limit(
    store: Store, groups: Sequence[Attempts], wanted: set[int], timeout: float
) -> float | None:
    """Return the limit in seconds for wanted compiles that hung when recorded; None if none did."""
    found = [queries.failure_of(store, group.last) for group in groups if group.last.id in wanted]
    limits = [hang_limit(failure, timeout) for failure in found]
    return max((limit for limit in limits if limit is not None), default=None)


def _facts(store: Store, groups: Sequence[Attempts]) -> dict[str, Json]:
    """Return the properties of the machine that any of the compiles has in its event log."""
    found: dict[str, Json] = {}
    decided: dict[str, list[Json]] = {name: [] for name in IN_ORDER}
    for group in groups:
        facts = asdict(facts_of(store, group.last, frame=True))
        for name, rows in decided.items():
            rows.extend((facts["accelerator"] or {}).get(name, ()))
        for name, value in facts.items():
            found[name] = found.get(name) or value
    if isinstance(accelerator := found.get("accelerator"), Mapping):
        found["accelerator"] = {**accelerator, **decided}
    return found


def _step(store: Store, group: Attempts, folder: Path, wanted: bool) -> SequenceStep:
    bundle, last = group.bundle, group.last
    assert bundle is not None
    data, document = folder / f"{last.id}.pickle", folder / f"{last.id}.json"
    data.write_bytes(store.read_blob(str(bundle.digest)))
    document.write_bytes(store.read_blob(str(bundle.tensors)))
    failure = queries.failure_of(store, last)
    return SequenceStep(
        id=last.id,
        place=last.place,
        # The name of Dynamo's part of an export is the one that it has to give again.
        compile_id=group.rows[0].compile_id if is_export(last) else last.compile_id,
        data=str(data),
        document=str(document),
        missing=bundle.reason,
        wanted=wanted,
        backward=had_backward(store, last) or bool(queries.events(store, last, LATE_BACKWARD)),
        execute=failure is not None and failure.stage == "run",
        execute_backward=backward_that_failed(failure),
        compile_cpp=failure is not None and failure.stage in ("run", "codegen"),
        items=_items(store, group),
        entries=[
            (event.name, _why_void(event.fields.reason))
            for row in group.rows[:1]
            for event in queries.events(store, row, CacheMiss.kind)
            if isinstance(event.fields, CacheMiss)
        ],
        lookups=fake_cache.as_data(fake_cache.lookups_in(store, group.rows)) if wanted else {},
        traced_patterns=[
            name for row in group.rows for name in pattern_libraries.traced(store, row)
        ],
        source_of_nodes=not _guards_on(store, group, SOURCE_GUARD),
        written=[
            event.name for row in group.rows for event in queries.events(store, row, "dump_file")
        ],
        taken=sorted(_taken(store, group)),
        remainders=remainders.learned_in(store, group.rows),
        operators=operators_called(store, group.rows),
    )


_MADE_NAMES = ("__", "torch_dynamo_resume_in_")
"""Beginnings of names that Dynamo counts in another way."""


def _taken(store: Store, group: Attempts) -> set[str]:
    """Return the names that were taken when Dynamo named globals: those with lower numbers.

    None are known for a frame that was begun anew: its earlier attempts took some of them.
    """
    if len(group.rows) > 1:
        return set()
    found, known = set[str](), set[str]()  # known: of the original code
    for event in queries.events(store, group.last, Bytecode.kind):
        assert isinstance(event.fields, Bytecode)
        for name in set(event.fields.names) - known:
            first, _, number = name.rpartition("_")
            if first and not name.startswith(_MADE_NAMES) and re.fullmatch(r"\d{1,3}", number):
                found |= {first, *(f"{first}_{lower}" for lower in range(int(number)))}
        known.update(event.fields.names)
    return found


def _why_void(reason: str) -> str:
    """Return the reason why a cache entry was void, if an object was gone; '' for other reasons."""
    text = reason.partition(": ")[2]
    return text if text.startswith("Cache line invalidated because ") else ""


def _guards_on(store: Store, group: Attempts, expression: str) -> bool:
    """Return True if a compile has a guard on an expression."""
    return any(
        isinstance(event.fields, Guard) and event.fields.expression == expression
        for row in group.rows
        for event in queries.events(store, row, Guard.kind)
    )


def _items(store: Store, group: Attempts) -> list[tuple[Json, Json]]:
    """Return the 0-d inputs whose values became symbols: their Sources, and the hints of those."""
    found: list[tuple[Json, Json]] = []
    for row in group.rows:
        read = queries.events(store, row, ScalarItem.kind)
        symbols = queries.events(store, row, BackedSymbol.kind) if read else ()
        hints = {e.name: e.fields.hint for e in symbols if isinstance(e.fields, BackedSymbol)}
        found += [
            (event.fields.source, hint[0])
            for event in read
            if isinstance(event.fields, ScalarItem)
            and isinstance(hint := hints.get(event.name), list)
            and hint
        ]
    return found


def _replayed(target: str, recording_id: int | None) -> Sequence[Compile]:
    """Return the compiles that the replay made."""
    if recording_id is None:
        return ()
    with Store.open(target) as store:
        return queries.compiles(store, recording_id)
