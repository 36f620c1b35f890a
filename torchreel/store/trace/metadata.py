"""The metadata of records of torch's structured trace: what is context, what names a record.

Not here: files of such records (`trace_records`), which a process that is recorded needs not.
"""

from __future__ import annotations

from collections.abc import Mapping

CONTEXT = frozenset(
    {
        "rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "severity",
        "timestamp", "pathname", "lineno", "thread", "subgraph_name", "has_payload", "stack",
    }
)  # fmt: skip
"""Keys of metadata that are not the record's kind.  torch reserves them; `pathname` and `lineno`
are those of the line's prefix, as tlparse names them in its raw.jsonl."""

STRING = "str"
"""The kind that explains the number of a file name: `[name, number]`."""


def kind_of(metadata: Mapping[str, object]) -> str:
    """Return the kind of a record: the first metadata key that is no context, or 'unknown'."""
    return next((key for key in metadata if key not in CONTEXT), "unknown")


def name_of(data: object) -> str:
    """Return the name of the thing that a record brings ('aot_joint_graph' of an artifact), or
    ''.
    """
    name = data.get("name") if isinstance(data, Mapping) else None
    return str(name) if name is not None else ""


def compile_name(metadata: Mapping[str, object]) -> str | None:
    """Return a CompileId of torch as it prints, from the keys that a record spreads it over."""
    autograd = metadata.get("compiled_autograd_id")
    frame = metadata.get("frame_id")
    name = None if frame is None else f"{frame}/{metadata.get('frame_compile_id')}"
    if autograd is None:
        return name
    return f"!{autograd}" + (f"/{name}" if name else "")
