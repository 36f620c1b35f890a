"""Failing programs, recorded in this process, for the tests of `minify`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

import torchreel


def record(
    path: Path,
    fn: Callable[..., Any],
    *inputs: object,
    named: Mapping[str, object] | None = None,
    **kwargs: Any,
) -> Path:
    """Compile and call `fn` under the recorder; what it raises is recorded and swallowed."""
    torch._dynamo.reset()
    with torchreel.record(path), contextlib.suppress(Exception):
        torch.compile(fn, **kwargs)(*inputs, **(named or {}))
    torch._dynamo.reset()
    return path
