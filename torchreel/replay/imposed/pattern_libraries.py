"""Traces Inductor's libraries of patterns unseen, as the recorded process had done before.

Lives here: which libraries a compile traced itself, and how a replay is given the others.  Called
by replays of every entry that gets as far as Inductor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from torchreel.events.proxies import ProxyTrace
from torchreel.replay.compare.rules import LIBRARIES
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile
from torchreel.torch_compat.patching import patched

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder


def traced(store: Store, compile: Compile, begin: int = 0) -> tuple[str, ...]:
    """Return the libraries that Inductor traced in a compile, after the event `begin`."""
    found = [
        (event.name, _layouts(event.fields.arguments))
        for event in queries.events(store, compile, ProxyTrace.kind)
        if isinstance(event.fields, ProxyTrace) and event.seq > begin
    ]
    return tuple(name for name, pattern in LIBRARIES.items() if pattern in found)


def _layouts(arguments: Json) -> Json:
    """Return sizes and strides in the place of each tensor, which is a dtype, these, a device."""
    if not isinstance(arguments, list):
        return arguments
    return [item[1:3] if isinstance(item, list) else item for item in arguments]


@contextlib.contextmanager
def pattern_libraries(recorder: Recorder, seen: Sequence[str] = ()) -> Iterator[None]:
    """Have Inductor's libraries of patterns traced unseen, but for those that were `seen`.

    A process traces each once, in its first compile; the recorded one had the others behind it.
    """
    from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad

    with ExitStack() as stack:
        for module in (pre_grad, joint_graph, post_grad):
            if module.__name__.rpartition(".")[2] in seen:
                continue
            unseen = _unseen(recorder, module.lazy_init)
            stack.enter_context(patched(module, "lazy_init", unseen))
        yield


@contextlib.contextmanager
def put_off(libraries: Sequence[str]) -> Iterator[None]:
    """Leave libraries of patterns to a later compile, in one that nobody compares."""
    from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad

    with ExitStack() as stack:
        for module in (pre_grad, joint_graph, post_grad):
            if module.__name__.rpartition(".")[2] in libraries:
                stack.enter_context(patched(module, "lazy_init", lambda *_: None))
        yield


def _unseen(recorder: Recorder, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with recorder.spans.here.unrecorded():
            return function(*args, **kwargs)

    return run
