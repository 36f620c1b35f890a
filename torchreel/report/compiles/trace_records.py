"""Reads the records of torch's own trace, as text: what no other part of a page shows.

Lives here: which records are shown, and under which name.  Not here: graphs and generated code,
which are drawn (`graphs`, `details`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from torchreel.events.output_graph import Bytecode
from torchreel.report.document import CodeContent, RecordAt
from torchreel.report.packing import Packer
from torchreel.store.records import Event

_METRICS = ("compilation_metrics", "bwd_compilation_metrics", "aot_autograd_backward_metrics")
"""Kinds whose record is a mapping, and no text."""
_DRAWN = ("chromium_event", "inductor_output_code")
"""Kinds that have views of their own, beside those that end so:"""
_GRAPH = "_graph"


def records_of(
    events: Iterable[Event], packer: Packer, read: Callable[[str], str]
) -> Iterator[RecordAt]:
    """Yield the records of a compile, in order; `read` returns the text of a payload."""
    for event in events:
        name = event.name or event.kind
        if event.kind in _METRICS:
            text = json.dumps(event.data, indent=1, sort_keys=True)
            yield RecordAt(name, len(text), packer.add_spare(CodeContent(text)))
        elif event.payload is not None and not _is_drawn(event, name):
            text = read(event.payload) if packer.spare > 0 else ""
            place = packer.add_spare(CodeContent(text)) if text else None
            yield RecordAt(_title(event, name), len(text), place)


def _title(event: Event, name: str) -> str:
    return f"{name} bytecode" if event.kind == Bytecode.kind else name


def _is_drawn(event: Event, name: str) -> bool:
    return event.kind in _DRAWN or event.kind.endswith(_GRAPH) or name.endswith(_GRAPH)
