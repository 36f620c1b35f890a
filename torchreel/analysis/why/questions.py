"""`why`: the question in a few words, and who answers it.

Lives here: what a question is about.  Not here: the answers (`symbols`, `guards`, `frames`,
`specialised`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from torchreel.analysis.event_log import CompileEventLog, SharedRows, compile_of, compiles_of
from torchreel.analysis.why.frames import why_graph_break, why_recompile
from torchreel.analysis.why.guards import why_event, why_guard
from torchreel.analysis.why.specialised import why_specialised
from torchreel.analysis.why.steps import Story
from torchreel.analysis.why.symbols import SYMBOL, why_symbol
from torchreel.errors import UnsupportedError, UsageError
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store

RECOMPILE, SPECIALISED, GRAPH_BREAK = "recompile", "specialised", "graph-break"
TOPICS: dict[str, Callable[[CompileEventLog], list[Story]]] = {
    RECOMPILE: why_recompile,
    SPECIALISED: why_specialised,
    GRAPH_BREAK: why_graph_break,
}
"""Questions about all that an address covers; without a compile in it, about whole recordings."""

_OTHER_SPELLINGS = {"specialized": SPECIALISED, "graph_break": GRAPH_BREAK, "break": GRAPH_BREAK}
_EVENT = re.compile(r"@?(?P<seq>\d{1,18})", re.ASCII)


def topic_of(what: str) -> str | None:
    """Return the topic that a word means, if it means one."""
    word = _OTHER_SPELLINGS.get(what, what)
    return word if word in TOPICS else None


@dataclass(frozen=True)
class Answer:
    """The stories that answer a question; none when nothing of the kind happened."""

    stories: tuple[Story, ...]
    silent: tuple[str, ...] = ()
    """The addresses of compiles whose event log lacks the answer: flight mode dropped the events,
    or an imported trace never had them."""


def why(store: Store, address: Address, what: str = "") -> Answer:
    """Return the events that led to something.

    `what` is a topic, a symbol, an event (`@417`), a piece of a guard's code or a guard's type.  If
    it is left out, the event of the address is explained.  Raises `UsageError` for a symbol, event
    or guard that the compile does not have, `UnsupportedError` if no compile's event log has the
    answer.
    """
    topic = topic_of(what)
    if topic is not None:
        return _covered(store, address, topic)
    log = CompileEventLog(store, compile_of(store, address))
    if SYMBOL.fullmatch(what):
        return Answer((why_symbol(log, what),))
    event = _EVENT.fullmatch(what)
    if event is not None or (not what and address.event is not None):
        seq = int(event["seq"]) if event else address.event
        where = Address(address.store, log.compile.recording_id, event=seq)
        return Answer(tuple(why_event(log, queries.event_at(store, where))))
    if not what:
        raise UsageError(
            "Say what is asked about: a symbol (s77), a guard (a piece of its code), an event "
            f"(@417), or one of {', '.join(TOPICS)}."
        )
    return Answer(tuple(why_guard(log, what)))


def _covered(store: Store, address: Address, topic: str) -> Answer:
    """Return the stories of a topic, of all compiles that an address covers."""
    rows = compiles_of(store, address)
    if topic == SPECIALISED and address.attempt is None and address.event is None:
        # An attempt that was given up decided nothing, but its event log has what broke or missed.
        rows = [row for row in rows if row.status != "restarted"] or rows[-1:]
    shared = {number: SharedRows(store, number) for number in {row.recording_id for row in rows}}
    logs = [CompileEventLog(store, row, shared[row.recording_id]) for row in rows]
    telling = [log for log in logs if any(kind.startswith("frame.") for kind in log.kinds)]
    silent = tuple(log.address for log in logs if log not in telling)
    if silent and not telling:
        raise UnsupportedError(
            f"{address} can't say: its event log has no frames, for only a summary was kept "
            f"(flight "
            "mode), or it was imported from a trace."
        )
    return Answer(tuple(story for log in telling for story in TOPICS[topic](log)), silent)
