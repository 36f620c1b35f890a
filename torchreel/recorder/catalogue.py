"""Every kind of event, as a page of the documentation.

`python -m torchreel.recorder.catalogue > docs/events.md`; a test holds the page to this.
"""

from __future__ import annotations

from torchreel.recorder.attach import AttachPoint
from torchreel.recorder.kinds import Kind
from torchreel.recorder.probes import event_kinds

SYSTEMS = (
    "Frames", "OutputGraph", "SubgraphTracer", "Guards", "ShapeEnv", "Unbacked symbols",
    "Deferred runtime asserts", "Scalars", "Fake tensors", "Proxy tracing",
    "Higher-order operators", "AOTAutograd", "Compiled autograd", "Inductor", "Nondeterminism",
    "Compiler collectives", "Script objects, custom ops, subclasses", "Backends", "Export",
)  # fmt: skip
"""The systems of the pipeline, in the order of the design's table (from 1)."""

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
    """The page, as Markdown."""
    kinds = sorted(event_kinds(), key=lambda kind: kind.name)
    parts = [_HEAD]
    for number, system in enumerate(SYSTEMS, 1):
        parts.append(f"\n## {number}. {system}\n")
        rows = [_row(kind) for kind in kinds if kind.system == number]
        if rows:
            parts.append("\n| kind | what happened | fields | probe | attach points |\n")
            parts.append("|---|---|---|---|---|\n")
        parts += rows
    return "".join(parts)


def _row(kind: Kind) -> str:
    fields = "; ".join(f"`{name}`: {meaning}" for name, meaning in kind.fields.items())
    points = ", ".join(map(_point, kind.points))
    kept = "" if kind.pages else " (a row of `events`)"
    return f"| `{kind.name}`{kept} | {kind.meaning} | {fields} | {kind.probe} | {points} |\n"


def _point(point: AttachPoint) -> str:
    """Name an attach point, with the releases of torch that have it where not all of them do."""
    releases = point.releases()
    return f"`{point}` ({releases})" if releases else f"`{point}`"


if __name__ == "__main__":
    print(page(), end="")
