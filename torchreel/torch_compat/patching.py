"""Another value for an attribute of torch, for a while.

Everything outside of the recorder that stands in front of a name of torch does it with `patched`.
The recorder has wrappers of its own (`recorder.attach`), because these stay for the life of a
process and have to be cheap.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

_ABSENT = object()


@contextlib.contextmanager
def patched(owner: Any, name: str, value: object, *, create: bool = False) -> Iterator[None]:
    """Set an attribute of a module, class or object, and put back what stood there.

    A name that `owner` inherits is inherited again afterwards.  Raises AttributeError where it has
    no such name, unless `create` is set: a name that torch has renamed must not be set in vain.
    """
    if not create:
        getattr(owner, name)
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def hide_frame(error: BaseException) -> None:
    """Take the caller's own frame, the head of the traceback, out of it.

    A bare `raise` that follows adds nothing: the program sees the traceback that it would have
    seen without us.
    """
    traceback = error.__traceback__
    if traceback is not None and traceback.tb_next is not None:
        error.__traceback__ = traceback.tb_next


def disguise(wrapper: Any, original: Any) -> None:
    """Let the frames of `wrapper` pass for frames of the file of `original`.

    torch looks for the user's frame by leaving out frames of its own files
    (torch.fx.experimental.symbolic_shapes.uninteresting_files): ours must be left out as well, or
    the messages and the event log of the watched program would name it.
    """
    code = getattr(inspect.unwrap(original), "__code__", None)
    if code is not None:
        wrapper.__code__ = wrapper.__code__.replace(
            co_filename=code.co_filename, co_firstlineno=code.co_firstlineno
        )
