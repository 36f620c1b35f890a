"""The ATen graphs that Inductor gets of a case, seen on their way."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torchreel.recorder.probes import inductor
from torchreel.store.portable.checkpoints import CheckpointDoc, aot_checkpoint
from torchreel.torch_compat.names import resolve


@contextmanager
def collected_partitions(see: Callable[[CheckpointDoc], None]) -> Iterator[None]:
    """Give each ATen graph to `see` as it enters Inductor, for the length of a `with`."""
    importlib.import_module(inductor.INNER.module)
    owner, name = resolve(inductor.INNER)
    original = vars(owner)[name]

    @functools.wraps(original)
    def wrapper(gm: Any, example_inputs: Sequence[object], *args: Any, **kwargs: Any) -> Any:
        see(aot_checkpoint(gm, example_inputs, kwargs))
        return original(gm, example_inputs, *args, **kwargs)

    with mock.patch.object(owner, name, wrapper):
        yield
