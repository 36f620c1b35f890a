"""The configuration that decided a compile: entries that differ from their defaults.

Lives here: capture and restoration of the config modules.  Not here: options of one
`torch.compile` call (`checkpoints`), state that is no config (`ambient`).

An entry whose value names a command, a path, a library or code is recorded but not `portable`: it
is restored only with `--trust`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments
from torchreel.patterns import lazy_text
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.torch_compat import configs

# Names of entries that lead outside: commands, paths, libraries, callables, remote services.
_OUTSIDE = lazy_text(
    r"path|dir(_|$)|(^|[._])cxx|compiler|cmd|command|cflags|ldflags|flags$|include|librar|(^|_)lib|"
    r"file|url|remote|_pass(es)?($|_)|custom|callback|hook|exec|script|prefix|nvcc|rocm_home|"
    r"cuda_home|cutlass|subprocess|worker_start|debug_ir_traceback|replay_record|repro_|save_|"
    r"dump|_log|trace\.|log_file|preload|plugin|backend_override|config_override",
    re.IGNORECASE,
)
_ACTS = lazy_text(r"remote|save_|dump|replay_record|trace\.|upload|distributed_autotune")
"""Switches that have torch write files, or talk to other machines."""
_WORD = lazy_text(r"[\w.,:+-]{0,64}")
# Entries that say how a process works, not what it compiles; each process has its own.
_PROCESS = frozenset(
    {
        "inductor.worker_log_path", "inductor.compile_threads", "compiler.job_id",
        "compiler.pgo_extra_read_key", "compiler.pgo_extra_write_key",
    }
)  # fmt: skip
_LINES_IN_CODE = frozenset({"inductor.cpp.enable_kernel_profile"})
"""Switches by which Inductor writes stack traces, which are any text, into C++."""
# Sources and values by which torch chooses symbols: it compares names with them.
_LONGEST_PATTERN = 4096
_PATTERNS = frozenset(
    {"compiler.dynamic_sources", "compiler.dynamic_values", "compiler.unbacked_sources"}
)


def encode_config() -> list[Json]:
    """Return every entry of a config module that is not the default."""
    return [
        encode_entry(module, key, value)
        for module, config in configs.config_modules().items()
        for key, value in sorted(configs.non_default_entries(config).items())
    ]


def encode_entry(module: str, key: str, value: object) -> Json:
    """Return one entry, with whether it may be restored without trust."""
    tree = node_arguments.encode_value(value)
    return {
        "module": module,
        "key": key,
        "value": tree,
        "portable": is_portable(module, key, tree),
    }


def is_portable(module: str, key: str, tree: Json) -> bool:
    """Return True if restoring an entry can neither run, open nor reach anything."""
    if f"{module}.{key}" in _PROCESS | _LINES_IN_CODE:
        return False
    if f"{module}.{key}" in _PATTERNS and isinstance(tree, str):
        return _is_pattern(tree)
    nowhere = tree is None or isinstance(tree, (bool, int))  # None: no such pass, no such path
    return _is_inert(tree) and (nowhere or _OUTSIDE.search(key) is None)


def _is_pattern(text: str) -> bool:
    """Return True for a list of patterns that torch can compare names with."""
    with contextlib.suppress(re.error, RecursionError):
        return len(text) <= _LONGEST_PATTERN and all(map(re.compile, text.split(",")))
    return False


def _is_inert(tree: Json) -> bool:
    if tree is None or isinstance(tree, (bool, int)):
        return True
    if isinstance(tree, str):
        return bool(_WORD.fullmatch(tree))
    if isinstance(tree, Sequence):
        return all(_is_inert(item) for item in tree)
    if isinstance(tree, Mapping) and len(tree) == 1:
        ((kind, data),) = tree.items()
        return kind == "f" or (kind in ("t", "d") and _is_inert(data))
    return False


def check_entries(entries: Sequence[Json]) -> None:
    """Raise `UnsupportedError` for an entry that does not say of which module and key it is."""
    for entry in entries:
        fields = as_object(entry)
        if not all(isinstance(fields.get(key), str) for key in ("module", "key")):
            raise UnsupportedError(f"malformed entry of a config {entry!r:.80}")


def restorable(entries: Sequence[Json], *, trust: bool) -> tuple[list[Json], list[str]]:
    """Return the entries to restore, and the names of those left out.

    Whether an entry is safe is decided here again: a store may lie about `portable`.
    """
    kept: list[Json] = []
    left: list[str] = []
    for entry in entries:
        module, key, tree = _fields(entry)
        if f"{module}.{key}" in _PROCESS:
            continue
        if trust or is_portable(module, key, tree):
            kept.append(entry)
        else:
            left.append(f"{module}.{key}")
    return kept, left


def writable(entries: Sequence[Json]) -> tuple[list[Json], list[str]]:
    """Return the entries that may stand in a script, and the names of those left out.

    A script runs unconfined elsewhere: nothing in it is to write files or to reach other machines.
    """
    kept, left = restorable(entries, trust=False)
    acting = [entry for entry in kept if _acts(entry)]
    names = [f"{module}.{key}" for module, key, _ in map(_fields, acting)]
    return [entry for entry in kept if entry not in acting], [*left, *names]


def _acts(entry: Json) -> bool:
    _, key, tree = _fields(entry)
    return tree is True and _ACTS.search(key) is not None


def _fields(entry: Json) -> tuple[str, str, Json]:
    if not isinstance(entry, Mapping) or not {"module", "key", "value"} <= set(entry):
        raise UnsupportedError(f"malformed config entry {entry!r:.80}")
    return str(entry["module"]), str(entry["key"]), entry["value"]


@contextlib.contextmanager
def patched(
    entries: Sequence[Json],
    *,
    trust: bool = False,
    objects: Mapping[str, Callable[[], object]] | None = None,
) -> Iterator[list[str]]:
    """Restore recorded entries for the length of a `with`; yields what was left out and why.

    `objects` loads what an entry held, by its name, where that was code.  An entry that this torch
    does not have is left out, not an error: names come and go.
    """
    kept, left = restorable(entries, trust=trust)
    modules = configs.config_modules()
    with ExitStack() as stack:
        for entry in kept:
            module, key, tree = _fields(entry)
            config = modules.get(module)
            if config is None or key not in configs.config_keys(config):
                left.append(f"{module}.{key} (unknown to this torch)")
                continue
            load = (objects or {}).get(f"{module}.{key}")
            try:
                value = node_arguments.decode_value(tree, _no_leaf) if load is None else load()
            except UnsupportedError as error:
                left.append(f"{module}.{key} ({error})")
                continue
            stack.enter_context(config.patch({key: value}))
        yield left


def _no_leaf(kind: str, data: Json) -> object:
    found = data.get("type") if kind == "opaque" and isinstance(data, Mapping) else None
    raise UnsupportedError(f"an object that can't be restored: {found or kind!s:.80}")
