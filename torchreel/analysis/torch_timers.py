"""Torch's own timers of a recording, as events of Chrome's trace format.

Lives here: which of the records of kind `chromium_event` are kept, and what of each.  Not here: the
rest of a timeline (`timeline`, which calls this).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from torchreel.errors import DamagedStore
from torchreel.escaping.characters import visible
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.records import Recording

_KIND = "chromium_event"
_PHASES = ("B", "E", "X", "i")
"""A beginning, an end, both in one, and a moment."""
_LONGEST = 300
"""Characters of a name or of an argument."""
_MOST_ARGUMENTS = 40
_MOST_THREADS = 1_000


def torch_timers(
    store: Store, recording: Recording, compiles: Collection[int], epoch: int, first_row: int
) -> Iterator[Json]:
    """Yield the timers of some compiles, by row id, on rows of their own from `first_row` on."""
    rows: set[int] = set()
    for event in queries.events(store, recording, _KIND):
        if event.payload is None or event.compile_id not in compiles:
            continue
        timer = _timer(_read(store, event.payload), epoch)
        if timer is None:
            continue
        thread, shown = timer
        row = first_row + thread
        if row not in rows:
            rows.add(row)
            yield {
                "ph": "M", "pid": recording.id, "tid": row, "name": "thread_name",
                "args": {"name": "timers of torch" + (f" ({thread})" if thread else "")},
            }  # fmt: skip
        yield {**shown, "pid": recording.id, "tid": row}


def _read(store: Store, digest: str) -> bytes:
    """Return a record; nothing where it can't be read, which is said at the end."""
    try:
        return store.read_blob(digest)
    except DamagedStore as error:
        store.skip(error)
        return b""


def _timer(record: bytes, epoch: int) -> tuple[int, dict[str, Json]] | None:
    """Return the thread and the event of a record; None for what is no timer."""
    try:
        data = parse_json(record)
    except ValueError:
        return None
    if not isinstance(data, Mapping) or data.get("ph") not in _PHASES:
        return None
    at, thread, lasted = data.get("ts"), data.get("tid"), data.get("dur", 0)
    if not (_is_number(at) and _is_number(lasted)):
        return None
    event: dict[str, Json] = {
        "ph": data["ph"], "name": brief(data.get("name")), "cat": brief(data.get("cat")),
        "ts": float(str(at)) - epoch / 1000, "args": _arguments(data.get("args")),
    }  # fmt: skip
    if data["ph"] == "X":
        event["dur"] = lasted
    elif data["ph"] == "i":
        event["s"] = "t"
    return (thread if type(thread) is int and 0 <= thread < _MOST_THREADS else 0), event


def _is_number(value: Json) -> bool:
    return type(value) in (int, float) and math.isfinite(float(str(value)))


def _arguments(given: Json) -> dict[str, Json]:
    pairs = list(given.items())[:_MOST_ARGUMENTS] if isinstance(given, Mapping) else []
    return {brief(name): value if _is_number(value) else brief(value) for name, value in pairs}


def brief(value: object) -> str:
    """Return the text of a value of a store, cut and printable."""
    return visible(str(value)[:_LONGEST])
