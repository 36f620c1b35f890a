"""The private names of Dynamo that a replay of frames needs.

Called by `frames`.  To support another torch, this file changes.
"""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

import torch._dynamo
from torch._dynamo import convert_frame, eval_frame, external_utils, guards
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.source import CallMethodItemSource
from torch._dynamo.variables import functions
from torch._guards import TracingContext, tracing
from torch._logging import structured
from torch._subclasses.fake_tensor import FakeTensorConverter

from torchreel.formats import sources, symbols
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import counters
from torchreel.torch_compat.patching import patched
from torchreel.torch_compat.tensors.fake_tensors import no_dispatch
from torchreel.torch_compat.versions import names
from torchreel.torch_compat.versions.names import TorchName


class TracingStopped(BaseException):
    """A frame was compiled, or found in its cache: it is not to run as well."""


@contextlib.contextmanager
def compile_only(code: CodeType) -> Iterator[None]:
    """Let Dynamo compile frames of `code` and keep the results in its cache, but run none of them.

    Raises `TracingStopped` where a frame would run.  To be entered once the recorder is attached:
    it sees the code that Dynamo made.
    """
    number = counters.hook_counter()
    hook = convert_frame.register_bytecode_hook(lambda old, new: _stopping(new))
    counters.set_hook_counter(number)  # the program had no such hook
    with _watching_skips(code):
        try:
            yield
        finally:
            hook.remove()


_HANDLE_SKIP = TorchName(
    "torch._dynamo.convert_frame", "CatchErrorsWrapper._handle_skip", "a frame that is skipped",
    since="2.13",
)  # fmt: skip
_CONVERT = TorchName(
    "torch._dynamo.convert_frame", "ConvertFrame.__call__", "a frame that is skipped", until="2.12"
)


@contextlib.contextmanager
def _watching_skips(code: CodeType) -> Iterator[None]:
    """Raise `TracingStopped` where Dynamo leaves a frame of `code` to Python."""
    skips = names.is_here(_HANDLE_SKIP)
    owner, name = names.resolve(_HANDLE_SKIP if skips else _CONVERT)
    original = vars(owner)[name]

    def stop_at_skip(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(kwargs.get("skip")) is int:
            kwargs["skip"] += 1  # frames of the stack to leave out: ours is one more
        found = original(self, *args, **kwargs)
        frame = args[1] if skips else args[0]
        if frame.f_code is code and found.guarded_code is None:
            raise TracingStopped
        return found

    with patched(owner, name, stop_at_skip):
        yield


def scope_names(tokens: Mapping[int, int]) -> AbstractContextManager[None]:
    """Let Dynamo name globals that belong to no module by their recorded ids.

    `tokens` maps ids here to recorded ones.  Dynamo sorts guards by the names of what they check.
    """
    install = OutputGraph.install_global_by_id

    def installed(self: Any, prefix: str, value: Any) -> str:
        if id(value) not in tokens:
            return install(self, prefix, value)
        name = f"{prefix}_{tokens[id(value)]}_c{self.compile_id}"
        if name not in self.installed_globals:
            self.install_global_unsafe(name, value)
        return name

    return patched(OutputGraph, "install_global_by_id", installed)


def order_of_entries(recorded: Sequence[tuple[str, str]]) -> AbstractContextManager[None]:
    """Let Dynamo check a cache's entries in the recorded order, and find the same ones void.

    An item is the name of an entry's compile, and the reason why the entry was void, or ''.  Dynamo
    first checks the entry that was used last, but calls that found their code are not replayed.  An
    entry is void once an object is gone that its guards refer to; objects of a bundle stay.
    """
    ask = vars(convert_frame)[_ASKED]
    place = {name: number for number, (name, _) in enumerate(recorded)}
    void = dict(recorded)

    def asked(entries: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(entries, list):  # in torch 2.12 it is a chain
            entries = sorted(entries, key=lambda e: place.get(str(e.compile_id), len(place)))
            for entry in entries:
                _void(entry, void.get(str(entry.compile_id), ""))
        return ask(entries, *args, **kwargs)

    return patched(convert_frame, _ASKED, asked)


def void_entries(code: CodeType, recorded: Sequence[tuple[str, str]]) -> None:
    """Make the entries of a cache void that were so when the frame was called.

    One that is void only when Dynamo asks for the reasons has been checked before that.
    """
    void = dict(recorded)
    for entry in eval_frame._debug_get_cache_entry_list(code) if any(void.values()) else ():
        _void(entry, void.get(str(entry.compile_id), ""))


_ASKED = "get_and_maybe_log_recompilation_reasons"


def _void(entry: Any, reason: str) -> None:
    """Invalidate a cache entry, as Dynamo does when an object has gone."""
    manager = entry.guard_manager
    if not reason or manager.extra_state is None:
        return
    if not isinstance(manager, guards.DeletedGuardManagerWrapper):
        void = guards.DeletedGuardManagerWrapper(reason)
        manager.extra_state.invalidate(entry, void)


@contextlib.contextmanager
def item_values(known: Sequence[tuple[Json, Json]]) -> Iterator[None]:
    """Let 0-d tensors have the values that became symbols: Source and value of each.

    A bundle's tensors have invented values, and torch reads those of such inputs while it makes
    them fake.  Each gets its own right before: as the tensor's, so that a guard on it holds.
    """
    values = {}
    for source, value in known:
        found = sources.decode_source(source)
        if isinstance(found, CallMethodItemSource):
            values[found.base] = symbols.decode_expr(value, {})
    convert = FakeTensorConverter.from_real_tensor

    def converted(self: Any, mode: Any, t: Any, *args: Any, **kwargs: Any) -> Any:
        source = kwargs.get("source")
        if source in values and t.dim() == 0:
            with no_dispatch(), torch.no_grad():
                t.data.fill_((float if t.is_floating_point() else int)(values[source]))
        return convert(self, mode, t, *args, **kwargs)

    if values:
        FakeTensorConverter.from_real_tensor = converted  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        FakeTensorConverter.from_real_tensor = convert  # type: ignore[method-assign]


class _Written(set[str]):
    """The generated files that a process has written to its trace: all but a few."""

    def __init__(self, left: Sequence[str]) -> None:
        super().__init__()
        self._left = frozenset(left)

    def __contains__(self, name: object) -> bool:
        return name not in self._left or super().__contains__(name)


@contextlib.contextmanager
def taken_names(scope: dict[str, Any], wanted: Sequence[str]) -> Iterator[None]:
    """Have names in the globals of a frame that earlier compiles had put there.

    For the result of a function (`assume_constant_result`) Dynamo takes the first name that is
    free: `get_config`, `get_config_0`.
    """
    added = [name for name in wanted if name not in scope]
    scope.update(dict.fromkeys(added))
    try:
        yield
    finally:
        for name in added:
            scope.pop(name, None)


def files_written(now: Sequence[str]) -> AbstractContextManager[None]:
    """Let torch write these generated files to its trace, and no others: they were written."""
    return patched(structured, "DUMPED_FILES", _Written(now))


_NODES_SOURCE = TorchName(
    "torch._dynamo.variables.functions", "get_pytree_SUPPORTED_NODES_source",
    "a source that is made once in a process, with a guard on the module torch",
)  # fmt: skip


def make_source_of_nodes(already: bool) -> None:
    """Make the source of pytree's registered classes, or forget it, as it was for a compile."""
    if not names.is_here(_NODES_SOURCE):
        return
    make = functions.get_pytree_SUPPORTED_NODES_source
    make.cache_clear()
    if already:
        with tracing(TracingContext(None)):
            make()


def compiled_itself() -> Any:
    """Let `torch.compile` compile a function that torch would call from a frame of its own.

    That frame is for a function whose file Dynamo skips.  A recorded frame was not skipped, or is
    that frame already.
    """
    return patched(external_utils, "wrap_inline", lambda function: function)


def _stopping(code: CodeType) -> CodeType:
    """Return code with the signature of `code` that raises `TracingStopped`."""
    place = len(code.co_consts)
    load = [dis.opmap["EXTENDED_ARG"], place >> 8] if place > 255 else []
    load += [dis.opmap["LOAD_CONST"], place & 255]
    body = bytes([dis.opmap["RESUME"], 0, *load, dis.opmap["RAISE_VARARGS"], 1])
    return code.replace(
        co_code=body,
        co_consts=(*code.co_consts, TracingStopped),
        co_exceptiontable=b"",
        co_linetable=b"",
        co_stacksize=max(code.co_stacksize, 1),
    )


def add_generated(file: str, text: str) -> None:
    """Make known the source of an FX module, as FX does: by the name of a file that is none."""
    from torch.fx import graph_module

    # Read line by line (linecache), each has an end; the text as FX wrote it has none at its own.
    graph_module._loader.eval_cache[file] = text.removesuffix("\n")


def error_on_graph_break(wanted: bool) -> Any:
    """Return a context manager that sets `torch._dynamo.error_on_graph_break`, if that was set."""
    return torch._dynamo.error_on_graph_break(True) if wanted else contextlib.nullcontext()


def registered_backends() -> list[str]:
    """Return the names of torch's own backends, and of those that were registered with it."""
    from torch._dynamo.backends.registry import list_backends

    return list(list_backends(exclude_tags=()))
