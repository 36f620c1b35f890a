"""`torchreel guards`: the guards of a compile, and which of them an input would pass.

Lives here: what is shown, as tables and as JSON.  Not here: the verdicts
(`torchreel.analysis.guard_check.check`).
"""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.analysis.event_log import CompileEventLog, compile_of
from torchreel.analysis.guard_check.check import FAIL, PASS, UNKNOWN, Check, Judged, counts, judge
from torchreel.analysis.guard_check.example import example_input
from torchreel.analysis.guard_check.inputs import parse_inputs
from torchreel.analysis.why.guards import is_mark, shown
from torchreel.commands.rendering import listing, lost, streams
from torchreel.commands.rendering.text import count
from torchreel.errors import UnsupportedError
from torchreel.events.frames import CacheMiss
from torchreel.store import Store
from torchreel.store.addressing import Address

_STYLES = {FAIL: "red", UNKNOWN: "yellow", PASS: "green"}


def guards(store: Store, address: Address, described: Sequence[str], json: bool) -> int:
    """Print the guards of a compile, judged where inputs are described.

    Returns the exit status: 1 when a guard fails, 0 otherwise.
    """
    inputs = parse_inputs(described)
    log = CompileEventLog(store, compile_of(store, address))
    judged = judge(log, inputs)
    if not judged:
        raise UnsupportedError(
            f"{log.address} has no guards in its event log: it was recorded in flight mode, "
            f"imported "
            "from a trace, or ended before they were made. See 'torchreel show'."
        )
    if json:
        listing.write_json([_row(guard, judged=bool(inputs)) for guard in judged])
    elif inputs:
        _print_verdicts(log, judged)
    else:
        _print_guards(log, judged)
    for name in inputs:
        if not _is_mentioned(name, judged):
            streams.say(f"no guard mentions {name}: its description decides nothing")
    lost.say_lost(store, address)
    _print_next(log, judged, bool(inputs))
    return 1 if inputs and any(guard.verdict == FAIL for guard in judged) else 0


def _is_mentioned(name: str, judged: Sequence[Judged]) -> bool:
    return any(
        name in text for guard in judged for text in (guard.expression, *_codes(guard.checks))
    )


def _codes(checks: Sequence[Check]) -> list[str]:
    return [check.code for check in checks]


def _row(guard: Judged, judged: bool) -> listing.Row:
    row = guard.to_json()
    if judged:
        return row
    checks = [check.code for check in guard.checks if check.code]
    return {key: value for key, value in row.items() if key != "verdict"} | {"checks": checks}


def _print_guards(log: CompileEventLog, judged: Sequence[Judged]) -> None:
    streams.result(f"{log.address}: {count(len(judged), 'guard')}", style="bold")
    made = streams.table("type", "on", "check", "user's line", "event")
    for guard in judged:
        for number, check in enumerate(_worth_showing(guard.checks)):
            first = number == 0
            head = (guard.type, guard.expression) if first else ("", "")
            tail = (_line(guard), _event(guard)) if first else ("", "")
            streams.add_row(made, *head, shown(check.code), *tail)
    streams.show(made)


def _print_verdicts(log: CompileEventLog, judged: Sequence[Judged]) -> None:
    """Print the guards that fail, with the reason, then those that can't be judged, then others."""
    found = ", ".join(f"{number} {verdict}" for verdict, number in counts(judged).items())
    streams.result(f"{log.address}: {count(len(judged), 'guard')}: {found}", style="bold")
    made = streams.table("verdict", "type", "check", "why", "user's line", "event")
    for verdict in (FAIL, UNKNOWN, PASS):
        for guard in judged:
            if guard.verdict == verdict:
                _add_guard(made, guard)
    streams.show(made)


def _add_guard(made: object, guard: Judged) -> None:
    style = _STYLES[guard.verdict]
    decisive = [check for check in guard.checks if check.verdict == guard.verdict]
    for number, check in enumerate(_worth_showing(decisive)):
        tail = (_line(guard), _event(guard)) if number == 0 else ("", "")
        code = shown(check.code) or guard.expression
        streams.add_row(
            made,  # type: ignore[arg-type]
            guard.verdict, guard.type, code, check.reason, *tail, style=style,
        )  # fmt: skip


def _worth_showing(checks: Sequence[Check]) -> list[Check]:
    """Return the checks without those that every tensor gets, unless they fail."""
    return [check for check in checks if check.verdict == FAIL or not is_mark(check.code)]


def _line(guard: Judged) -> str:
    return f"{guard.line.file}:{guard.line.line} in {guard.line.name}" if guard.line else ""


def _event(guard: Judged) -> str:
    return f"@{guard.address.rpartition('@')[2]}"


def _print_next(log: CompileEventLog, judged: Sequence[Judged], described: bool) -> None:
    failing = [guard for guard in judged if guard.verdict == FAIL]
    if described and failing:
        streams.next_command("torchreel", "why", failing[0].address)
    elif described and log.of(CacheMiss.kind):
        streams.next_command("torchreel", "why", log.address, "recompile")
    elif not described and (example := example_input(log)) is not None:
        streams.next_command("torchreel", "guards", log.address, "--input", example)
    else:
        streams.next_command("torchreel", "show", log.address)
