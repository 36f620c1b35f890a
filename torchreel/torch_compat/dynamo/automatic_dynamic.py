"""Traces of earlier compiles in Dynamo: the sizes that it saw, the floats that it specialises."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
import torch._guards

if TYPE_CHECKING:
    from torchreel.store.documents.jsontypes import Json


def specialized_floats() -> list[str]:
    """Return the float symbols that Dynamo specialises because an earlier attempt failed on them.

    AOTAutograd asks for another restart when one of them is missing here.
    """
    from torch._dynamo.symbolic_convert import TensorifyState

    return sorted(TensorifyState.force_specializations)


def set_specialized_floats(names: Iterable[str]) -> None:
    """Restore the names of `specialized_floats`."""
    from torch._dynamo.symbolic_convert import TensorifyState

    TensorifyState.clear()
    for name in names:
        TensorifyState.specialize(name)


_MOST_CODES = 50
"""Code objects whose sizes are kept, the latest ones: a process may have seen any number."""


def seen_sizes(code: CodeType, closure: Any) -> list[Json]:
    """Return the sizes that automatic dynamic shapes has seen, by code object and source.

    `own` marks those of `code` itself; a code object with a closure is identified by the closure's
    hash, which is valid in one process only.
    """
    from torch._dynamo import pgo

    states = pgo._CODE_STATE if pgo._CODE_STATE is not None else _profile()
    if not states:
        return []
    own = pgo.CodeId.make(code, closure)
    found: list[dict[str, Json]] = [
        {
            "file": key.filename,
            "line": key.firstlineno,
            "name": key.name,
            "own": key == own,
            "sizes": {name: _seen(entry) for name, entry in state.automatic_dynamic.items()},
        }
        for key, state in states.items()
        if state.automatic_dynamic and (key.closure_hash is None or key == own)
    ]
    return [*(row for row in found[:-_MOST_CODES] if row["own"]), *found[-_MOST_CODES:]]


def _profile() -> Mapping[Any, Any]:
    """Return the profile of an earlier process of the same job, which the first compile will read.

    {} if there is none.  It is not loaded into Dynamo: torch's trace notes when Dynamo reads it.
    """
    from torch._dynamo import pgo

    job = torch.compiler.config.job_id
    if job is None or torch.compiler.config.force_disable_caches:
        return {}
    path = pgo.code_state_path(pgo.format_cache_key(job))
    try:
        found = {} if path is None else _ProfileReader(BytesIO(Path(path).read_bytes())).load()
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError):
        return {}  # torch goes on without it as well
    return found if isinstance(found, Mapping) else {}


class _ProfileReader(pickle.Unpickler):
    """Reads a profile of sizes, and creates only the classes that a profile consists of."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of torch's records of sizes.  Raises UnpicklingError for anything else."""
        from torch._dynamo import pgo

        if (module, name) == ("collections", "defaultdict"):
            return defaultdict
        if module == pgo.__name__ and name in _PROFILE:
            return getattr(pgo, name)
        raise pickle.UnpicklingError(f"a profile of sizes holds no {module}.{name}")


_PROFILE = (
    "AutoDynamic", "AutoUnset", "CodeId", "CodeState", "FrameStateSizeEntry", "InferStride",
)  # fmt: skip


def _seen(entry: Any) -> Json:
    from torch._dynamo import pgo

    def spelled(value: Any) -> Json:
        if value is None or isinstance(value, int):
            return value
        if isinstance(value, float):
            return {"float": value.hex()}
        if isinstance(value, tuple):
            return [spelled(item) for item in value]
        if isinstance(value, pgo.InferStride):
            return {"stride": value.dim}
        return "dynamic" if value is pgo.auto_dynamic else "unset"

    return {name: spelled(value) for name, value in vars(entry).items()}


def set_seen_sizes(found: Iterable[Json], code: CodeType, closure: Any) -> None:
    """Restore the sizes of `seen_sizes`, and nothing else: a reset forgets all others."""
    from torch._dynamo import pgo

    pgo._CODE_STATE = defaultdict(pgo.CodeState)
    for row in found:
        assert isinstance(row, Mapping)
        assert isinstance(row["sizes"], Mapping)
        file, line, name = str(row["file"]), int(str(row["line"])), str(row["name"])
        key = pgo.CodeId(file, line, name, pgo._hash_containing_file(file))
        if row["own"]:
            key = pgo.CodeId.make(code, closure)
        state = {source: _was_seen(entry) for source, entry in row["sizes"].items()}
        made = defaultdict(pgo.FrameStateSizeEntry, state)
        pgo._CODE_STATE[key] = pgo.CodeState(made)


def _was_seen(entry: Json) -> Any:
    from torch._dynamo import pgo

    words = {"dynamic": pgo.auto_dynamic, "unset": pgo.auto_unset}

    def value(spelled: Json) -> Any:
        if isinstance(spelled, list):
            return tuple(map(value, spelled))
        if isinstance(spelled, Mapping) and "float" in spelled:
            return float.fromhex(str(spelled["float"]))
        if isinstance(spelled, Mapping):
            return pgo.InferStride(int(str(spelled["stride"])))
        return words[spelled] if isinstance(spelled, str) else spelled

    assert isinstance(entry, Mapping)
    known = {item.name for item in fields(pgo.FrameStateSizeEntry)}
    found = {str(name): value(spelled) for name, spelled in entry.items() if name in known}
    return pgo.FrameStateSizeEntry(**found)
