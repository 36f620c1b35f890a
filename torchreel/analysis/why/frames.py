"""`why recompile` and `why graph-break`: what Dynamo could not use again, or could not trace.

Lives here: the stories of a frame's events.  Not here: the guards that failed (`guards`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from torchreel.analysis.event_log import CompileEventLog
from torchreel.analysis.why.guards import Background, guard_story
from torchreel.analysis.why.steps import Step, Story, step_of
from torchreel.events.frames import (
    CacheMiss,
    CacheSize,
    FrameStart,
    GraphBreak,
    Restart,
    SpeculationFailed,
)
from torchreel.events.guards import Guard
from torchreel.events.output_graph import SubgraphCompile
from torchreel.events.scalars import SymbolicScalar
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.sources import source_name
from torchreel.store.records import Event, StackFrame

# -- recompiles -----------------------------------------------------------------------------------


def why_recompile(log: CompileEventLog) -> list[Story]:
    """Return one story for each cache entry that could not be reused: the frame was compiled
    again.
    """
    starts = log.of(FrameStart.kind)
    caller = step_of(log, starts[0]) if starts else None
    return [_miss_story(log, event, miss, caller) for event, miss in log.typed(CacheMiss)]


def _miss_story(log: CompileEventLog, event: Event, miss: CacheMiss, caller: Step | None) -> Story:
    """Tell why a cache entry could not be reused: the guard that failed, and its origin."""
    parts = _failed_parts(miss.reason, miss.guards)
    what = "; ".join(parts) or shortened(miss.reason)
    entry = log.shared.named_before(log.compile, event.name)
    here, known = log.once(Background), entry.once(Background) if entry else None
    guards = _guard_stories(known, parts, miss.source or "") if known else []
    guarded = list({step.seq: step for story in guards for step in story.steps}.values())
    step = step_of(log, event, f"{log.compile.frame_name} was called: did not hold: {what}")
    if caller is not None:
        step = replace(step, line=caller.line, stack=caller.stack)
    values = _values(here, parts)
    address = entry.address if entry else event.name
    outcome = _outcome(log)
    facts: dict[str, Json] = {
        "compile": log.address, "frame": log.compile.frame_name, "entry": address,
        "guards": parts, "held": miss.held, "values": values,
        "reason": miss.reason, "event": step.address, "outcome": outcome,
    }  # fmt: skip
    return Story(
        f"{log.address} ({log.compile.frame_name}) {outcome} because entry {address} could not "
        f"be reused: {what}",
        (*guarded, step),
        facts,
        (
            *(f"torch says: {note}" for story in guards for note in story.notes),
            *_notes(values),
            *_never_dynamic(parts, guarded),
            *(hole for found in (known, here) if found for hole in found.holes),
        ),
    )


def _outcome(log: CompileEventLog) -> str:
    """Return the outcome of a cache miss: another compile, or a frame left uncompiled."""
    for _, size in log.typed(CacheSize):
        if size.exceeded:
            return f"was left uncompiled ({size.exceeded} is {size.limit})"
    return "was compiled"


def _notes(values: Mapping[str, Json]) -> list[str]:
    return [f"in the new call, {name} is {value}" for name, value in values.items()]


def _never_dynamic(parts: Iterable[str], guarded: Sequence[Step]) -> list[str]:
    """Return a note on a differing size that never had a symbol; [] for other checks."""
    sizes = any("size mismatch at index" in part for part in parts)
    if not sizes or any(step.kind.startswith("shape_env.") for step in guarded):
        return []
    return [
        "the size was static from the start: no event made it so (sizes are, until they vary or "
        "are marked dynamic)"
    ]


def shortened(reason: str) -> str:
    """Return the first line of a reason, without the entry that it names."""
    first = reason.strip().splitlines()[0] if reason.strip() else ""
    return re.sub(r"^[\d/!_]+: ", "", first).strip()


def _failed_parts(reason: str, guards: Sequence[str]) -> list[str]:
    """Return the checks that failed: of several that are made at once, the one that torch names."""
    first = shortened(reason).partition("  # ")[0].strip()
    named = [part for part in guards if _stripped(part) == _stripped(first)]
    return named or list(guards)


def _stripped(part: str) -> str:
    """Return a check as torch prints it in a reason: without the table of locals."""
    return re.sub(r"L\[['\"](\w+)['\"]\]", r"\1", part).replace(" ", "")


def _guard_stories(known: Background, parts: Sequence[str], source: str) -> list[Story]:
    """Return the stories of the guard that failed: the events that added it to the cache entry."""
    return [
        guard_story(known, event, guard, parts)
        for event, guard in known.event_log.typed(Guard)
        if _is_failed(event.name, guard, parts, source)
    ]


def _is_failed(name: str, guard: Guard, parts: Sequence[str], source: str) -> bool:
    if source and guard.expression == source:
        return name == "TENSOR_MATCH"
    # Guards on the state of the process fail with their name: 'GLOBAL_STATE changed: grad_mode'.
    named = any(part.partition(" ")[0] == name for part in parts)
    return named or any(part in parts for part in guard.code)


def _values(new: Background, parts: Iterable[str]) -> dict[str, Json]:
    """Return the new call's values in the failed checks, by source, as far as they are recorded."""
    log, parts = new.event_log, list(parts)
    known: dict[str, Json] = _static_sizes(log) if any(".size()[" in p for p in parts) else {}
    for row in new.table.symbols.values():
        known |= dict.fromkeys(row.sources, row.hint)
    for _, scalar in log.typed(SymbolicScalar):
        if scalar.value is not None:
            known[source_name(scalar.source)] = scalar.value
    return {
        name: value if isinstance(value, (int, float)) else spelling.size(value)
        for name, value in known.items()
        if value is not None and any(name in part for part in parts)
    }


def _static_sizes(log: CompileEventLog) -> dict[str, Json]:
    """Return the sizes of the new call that have no symbol: the new entry is for them alone."""
    return {
        f"{guard.expression}.size()[{at}]": int(length)
        for event, guard in log.typed(Guard)
        if event.name == "TENSOR_MATCH"
        for code in guard.code
        if (match := _SIZES.search(code))
        for at, length in enumerate(match["sizes"].split(", "))
        if length.isdecimal()
    }


_SIZES = re.compile(r"^check_tensor\(.*, size=\[(?P<sizes>[^\]]{0,2000})\]", re.DOTALL)


# -- graph breaks ---------------------------------------------------------------------------------

_HINT = re.compile(
    r"^[ \t]*+Hint: (?P<text>.*(?:\n(?![ \t]*+(?:Hint:|Developer debug|$)).*)*)", re.MULTILINE
)
_EXPLANATION = re.compile(
    r"^[ \t]*+Explanation: (?P<text>.*(?:\n(?![ \t]*+(?:Hint:|$)).*)*)", re.MULTILINE
)


def why_graph_break(log: CompileEventLog) -> list[Story]:
    """Return one story for each thing that could not be traced, with the user's whole stack."""
    return [_break_story(log, event, found) for event, found in log.typed(GraphBreak)]


def _break_story(log: CompileEventLog, event: Event, found: GraphBreak) -> Story:
    reason = found.reason
    sort = found.type or shortened(reason)
    step = step_of(log, event, sort)
    hints = [_flat(match["text"]) for match in _HINT.finditer(reason)]
    explained = _EXPLANATION.search(reason)
    explanation = _flat(explained["text"]) if explained else _flat(reason.partition("\n\n")[0])
    facts: dict[str, Json] = {
        "type": sort, "outcome": found.outcome, "explanation": explanation, "hints": hints,
        "event": step.address, "reason": reason,
    }  # fmt: skip
    after = [
        step_of(log, each, _after(each))
        for each in log.of(Restart.kind, SpeculationFailed.kind, SubgraphCompile.kind)
        if each.seq > event.seq and _follows(each)
    ]
    return Story(
        f"{sort} at {step.address}, {found.outcome}{_at(step.line)}",
        (step, *after[:1]),
        facts,
        (explanation, *(f"hint: {hint}" for hint in hints)),
    )


def _at(line: StackFrame | None) -> str:
    return f", in {line.name} at {line.file}:{line.line}" if line else ""


def _flat(text: str) -> str:
    return " ".join(text.split())


def _follows(event: Event) -> bool:
    return not isinstance(event.fields, SubgraphCompile) or event.fields.graph_break


def _after(event: Event) -> str:
    match event.fields:
        case Restart(reason=reason):
            return f"the attempt was given up: {reason}"
        case SpeculationFailed(instruction=instruction):
            return f"the next attempt will break the graph at {instruction}"
        case SubgraphCompile(reason=reason):
            return f"the graph ends here: {reason}"
    return event.kind
