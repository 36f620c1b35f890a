"""Every kind of event, as a page of the documentation.

`python -m torchreel.recorder.catalogue > docs/events.md`; a test holds the page to this.
"""

from __future__ import annotations

from torchreel.events.documentation import meaning, meanings_of_fields
from torchreel.events.event import EventType
from torchreel.recorder.attach import AttachPoint
from torchreel.recorder.probes import Noted, noted_events

SYSTEMS = {
    "Frames": ("frame", "hang", "trace"),
    "OutputGraph": ("output_graph",),
    "SubgraphTracer": ("subgraph",),
    "Guards": ("guards",),
    "ShapeEnv": ("shape_env",),
    "Unbacked symbols": ("unbacked",),
    "Deferred runtime asserts": ("runtime_assert",),
    "Scalars": ("scalar",),
    "Fake tensors": ("fake_tensors",),
    "Proxy tracing": ("proxies",),
    "Higher-order operators": ("hop",),
    "AOTAutograd": ("aot",),
    "Compiled autograd": ("compiled_autograd",),
    "Inductor": ("inductor",),
    "Nondeterminism": ("nondeterminism",),
    "Compiler collectives": ("collective",),
    "Script objects, custom ops, subclasses": ("custom",),
    "Backends": ("backend", "piece"),
    "Export": ("export",),
}
"""The systems of the pipeline, in its order, and the families of kinds of each."""

_HEAD = """# Events

The events of the event log, by system of the pipeline. `torchreel show ADDRESS --events` lists the
events of a compile, `torchreel show ADDRESS@SEQ` shows one; in Python,
`torchreel.store.queries.events`. Every event has its position in the event log (`seq`), its time,
its compile and stage, and where there is one the user's stack and the event that it is a part of
(`cause`).

Besides these, every record of torch's own structured trace is an event, under torch's name for it
(`artifact`, `dynamo_output_graph`, `create_symbol`, ...), with its metadata as `data` and its
payload; a kind that torchreel does not know is kept all the same. Where a system is listed
without events of its own, that trace and the tables `compiles`, `stages`, `graphs`, `checkpoints`
and `failures` hold what there is.

Made by `python -m torchreel.recorder.catalogue`.
"""


def page() -> str:
    """Return the page, as Markdown. Raises ValueError for a kind whose family is in no system."""
    events = sorted(noted_events().items(), key=lambda item: item[0].kind)
    _refuse_unknown([event_type.kind for event_type, _ in events])
    parts = [_HEAD]
    for number, (system, families) in enumerate(SYSTEMS.items(), 1):
        parts.append(f"\n## {number}. {system}\n")
        rows = [_row(*item) for item in events if item[0].kind.partition(".")[0] in families]
        if rows:
            parts.append("\n| kind | what happened | fields | probe | attach points |\n")
            parts.append("|---|---|---|---|---|\n")
        parts += rows
    return "".join(parts)


def _refuse_unknown(kinds: list[str]) -> None:
    known = {family for families in SYSTEMS.values() for family in families}
    absent = [kind for kind in kinds if kind.partition(".")[0] not in known]
    if absent:
        families = ", ".join(sorted({kind.partition(".")[0] for kind in absent}))
        raise ValueError(f"SYSTEMS of recorder/catalogue.py lacks: {families}")


def _row(event_type: type[EventType], noted: Noted) -> str:
    meanings = meanings_of_fields(event_type)
    fields = " ".join(f"`{name}`: {text}" for name, text in meanings.items())
    points = ", ".join(map(_point, noted.points))
    kept = "" if event_type.paged else " (a row of `events`)"
    what = f"| `{event_type.kind}`{kept} | {meaning(event_type)} | {fields} "
    return f"{what}| {noted.probe} | {points} |\n"


def _point(point: AttachPoint) -> str:
    """Name an attach point, with the releases of torch that have it where not all of them do."""
    releases = point.releases()
    return f"`{point}` ({releases})" if releases else f"`{point}`"


if __name__ == "__main__":
    print(page(), end="")
