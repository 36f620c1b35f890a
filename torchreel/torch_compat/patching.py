"""Another value for an attribute of torch, for a while.

Everything outside of the recorder that stands in front of a name of torch does it with `patched`.
The recorder has wrappers of its own (`recorder.attach`), because these stay for the life of a
process and have to be cheap.
"""

from __future__ import annotations

import contextlib
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
