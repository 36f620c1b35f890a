"""Traces Inductor's libraries of patterns unseen, as the recorded process had done before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from torchreel.torch_compat.patching import patched

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder


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


def _unseen(recorder: Recorder, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        here = recorder.spans.here
        before, here.inside = here.inside, True
        try:
            return function(*args, **kwargs)
        finally:
            here.inside = before

    return run
