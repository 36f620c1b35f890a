"""A replay with one thing changed (what-if).

Lives here: what can be changed, how it is written on a command line, and the changed checkpoint.
Not here: whether torch has such a config entry (`child.checks.check_config`), what
came of it (`compare`).

A change is made to the recorded data, before the child sees it: the replay itself knows of nothing.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchreel.errors import DamagedStore, UsageError
from torchreel.replay.compare.verdict import CHANGED, DIVERGED, IDENTICAL, UNCHANGED, Verdict
from torchreel.replay.imposed.facts import Facts
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json
from torchreel.store.documents.kinds import as_object, list_only

MODULES = ("dynamo", "functorch", "inductor", "fx")
ENTRIES = ("graph", "aot")
"""Entries of a replay with a change: it starts from a checkpoint, which is data."""
_DEVICE = re.compile(r"[a-z]+(:\d+)?", re.ASCII)


@dataclass(frozen=True)
class Changes:
    """The changes to make; none by default."""

    config: tuple[tuple[str, Json], ...] = ()
    """Entries by name (`inductor.max_fusion_size`) and value, as a tagged tree."""
    backend: str | None = None
    devices: tuple[tuple[str, str], ...] = ()
    python: str | None = None
    """The interpreter of another environment, with another torch."""
    written: tuple[str, ...] = ()
    """The changes as the user wrote them."""

    def __bool__(self) -> bool:
        return bool(self.config or self.backend or self.devices or self.python)

    def __str__(self) -> str:
        return ", ".join(self.written)


def changes(
    config: Sequence[str] = (),
    backend: str | None = None,
    map_device: Sequence[str] = (),
    python: str | None = None,
) -> Changes:
    """Return the changes that options ask for: `inductor.max_fusion_size=1`, `aot_eager`,
    `cuda=cpu`.

    Raises UsageError for what cannot be understood.
    """
    written = [*config, *([f"backend {backend}"] if backend else []), *map_device]
    return Changes(
        tuple(_entry(text) for text in config),
        backend,
        tuple(_mapping(text) for text in map_device),
        None if python is None else _interpreter(python),
        (*written, *([python] if python else [])),
    )


def _entry(text: str) -> tuple[str, Json]:
    name, equals, value = text.partition("=")
    module, _, key = name.strip().partition(".")
    if not equals or module not in MODULES or not key:
        raise UsageError(
            f"--config takes MODULE.NAME=VALUE with one of {', '.join(MODULES)}, as in "
            f"inductor.max_fusion_size=1, not {text!r:.80}."
        )
    try:
        return name.strip(), _tree(ast.literal_eval(value.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise UsageError(
            f"--config {name}: {value!r:.80} is no Python literal; text needs quotes of its own."
        ) from error


def _tree(value: object) -> Json:
    """Return a literal as a tagged tree (`torchreel.formats.node_arguments`)."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"f": value.hex()}
    if isinstance(value, list):
        return [_tree(item) for item in value]
    if isinstance(value, tuple):
        return {"t": [_tree(item) for item in value]}
    if isinstance(value, dict):
        return {"d": [[_tree(key), _tree(item)] for key, item in value.items()]}
    raise ValueError(f"no config value is a {type(value).__name__}")


def _mapping(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not _DEVICE.fullmatch(old) or not _DEVICE.fullmatch(new):
        raise UsageError(f"--map-device takes OLD=NEW, as in cuda=cpu, not {text!r:.80}.")
    return old, new


def _interpreter(path: str) -> str:
    found = shutil.which(path)
    if found is None:
        raise UsageError(f"--python {path!r:.200} is no program: name an interpreter to run.")
    return os.path.abspath(found)


# -- the changed checkpoint -----------------------------------------------------------------------


def applied(document: bytes, asked: Changes) -> bytes:
    """Return a checkpoint with the changes made.  Raises UsageError for one that it cannot have."""
    if not (asked.config or asked.backend or asked.devices):
        return document
    doc = parse_json(document)
    if not isinstance(doc, Mapping):
        raise DamagedStore("A stored checkpoint is not an object.")
    found = {**doc, "config": _configured(doc.get("config"), asked)}
    if asked.backend is not None:
        if doc.get("entry") != "graph":
            raise UsageError("--backend needs --entry graph: an ATen graph is Inductor's already.")
        known = as_object(doc.get("extra"))
        # The options were those of the recorded backend.
        found["extra"] = {**known, "backend": asked.backend, "options": []}
    for old, new in asked.devices:
        found = {key: _moved(value, old, new) for key, value in found.items()}
    return canonical_json(found)


def machine(facts: Facts, asked: Changes) -> Facts:
    """Return the facts to impose: how C++ is vectorised is for a changed entry to say, if there is
    one; a GPU is none where the graph is moved off it.
    """
    if any(old.partition(":")[0] == "cuda" for old, _ in asked.devices):
        facts = replace(facts, accelerator=None)
    decided = any(name.startswith("inductor.cpp.") for name, _ in asked.config)
    return replace(facts, vector_isa=None) if decided else facts


def _configured(recorded: Json, asked: Changes) -> list[Json]:
    names = {tuple(name.split(".", 1)) for name, _ in asked.config}
    entries = list_only(recorded)
    kept = [
        e
        for e in entries
        if not isinstance(e, Mapping) or (e.get("module"), e.get("key")) not in names
    ]
    new: list[Json] = []
    for name, tree in asked.config:
        module, key = name.split(".", 1)
        new.append({"module": module, "key": key, "value": tree, "portable": True})
    return [*kept, *new]


def _moved(value: Json, old: str, new: str) -> Json:
    """Return a tree with another device, with any index, wherever one stands."""
    if isinstance(value, Mapping):
        return {
            key: _device(item, old, new) if key == "device" else _moved(item, old, new)
            for key, item in value.items()
        }
    return [_moved(item, old, new) for item in value] if isinstance(value, list) else value


def _device(value: Json, old: str, new: str) -> Json:
    kind = value.partition(":")[0] if isinstance(value, str) else None
    return new if old in (value, kind) else _moved(value, old, new)


# -- the verdict ----------------------------------------------------------------------------------


def concluded(verdict: Verdict, asked: Changes) -> Verdict:
    """Return the verdict of a replay with a change: what changed is the answer, not a
    divergence.
    """
    if verdict.verdict == IDENTICAL:
        return replace(verdict, verdict=UNCHANGED, detail=f"with {asked}, all that was compared")
    if verdict.verdict == DIVERGED:
        return replace(verdict, verdict=CHANGED, detail=f"with {asked}, {verdict.detail}", cause="")
    return verdict
