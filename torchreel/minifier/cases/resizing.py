"""Checkpoints with other input sizes, to see for which of them Dynamo compiles again.

Serves the predicate `recompiles`: called by `oracle.child.graph_runner` and by `scripts`. Eager
mode finds out whether the graph accepts the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.minifier.cases.descriptions import contiguous, is_tensor, sizes
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object


def resized_checkpoints(doc: CheckpointDoc) -> Iterator[CheckpointDoc]:
    """Yield the checkpoint with each size in turn larger by one, everywhere in the inputs."""
    for symbol, hint in sorted(doc.hints.items()):
        if isinstance(hint, int):
            yield _with_hint(doc, symbol, hint + 1)
    known = {size for value in doc.inputs for size in sizes(value) if isinstance(size, int)}
    for size in sorted(known - {0, 1}):
        yield replace(doc, inputs=tuple(_grown(value, size) for value in doc.inputs))


def _with_hint(doc: CheckpointDoc, symbol: str, hint: int) -> CheckpointDoc:
    state = as_object(doc.shape_env.get("state"))
    rows = [as_list(row) for row in as_list(state.get("backed_var_to_val"))]
    values: Json = [[row[0], hint if row[0] == symbol else row[1]] for row in rows]
    env = {**doc.shape_env, "state": {**state, "backed_var_to_val": values}}
    return replace(doc, shape_env=env)


def _grown(value: Json, size: int) -> Json:
    """Return a description with `size + 1` for `size`, contiguous; others as they are."""
    given = sizes(value)
    if not is_tensor(value) or size not in given or not all(isinstance(s, int) for s in given):
        return value
    new = [int(s) + 1 if s == size else int(s) for s in given]
    kept = {k: v for k, v in as_object(value).items() if k not in ("storage", "storage_size")}
    return {**kept, "size": list(new), "stride": contiguous(new)}
