"""The backend that a case names: one of torch's own, or one that the user allowed to import.

A recorded name is never imported by itself: `--import MODULE` names the module, and the module
registers its backend (`torch._dynamo.register_backend`) or holds it under the recorded name. Called
in the worker, which has imported those modules before it forked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torchreel.errors import UntrustedError
from torchreel.minifier.cases.case import Case
from torchreel.replay.child import pieces, restore
from torchreel.torch_compat.dynamo import backends, debugging_backends


def backend_of(case: Case, *, trust: bool = False) -> Callable[..., Any]:
    """Return the callable, with the recorded options of its `torch.compile` call.

    Raises `UntrustedError` for a backend that is code nobody named, and, without `trust`, for
    options that name code, commands or paths.
    """
    doc = case.checkpoint
    if pieces.is_piece(doc) and case.backend == pieces.backend_name(doc.extra[pieces.KEY]):
        return pieces.backend(doc)
    made = debugging_backends.make(case.backend, lambda name: backends.backend(name, {}))
    if made is not None:
        return made  # type: ignore[no-any-return]
    module, colon, qualname = case.backend.partition(":")
    if not colon:
        return backends.backend(case.backend, restore.options_of(case.checkpoint, trust=trust))
    # A program that was run as a script recorded its own name as __main__.
    modules = case.imports if module == "__main__" else (module,) * (module in case.imports)
    for name in modules:
        found: object = sys.modules[name]
        for part in qualname.split("."):
            found = getattr(found, part, None)
        if callable(found):
            return found
    own = restore.own_backend(case.checkpoint, trust=trust)
    if own is not None:
        return own
    said = (
        "; the store holds no copy of it" if trust else
        ", or add --trust to run what the store holds of it"
    )  # fmt: skip
    raise UntrustedError(
        f"the recorded backend {case.backend!r} is not one of torch's own: "
        f"name the module that defines {qualname!r} with --import MODULE{said}"
    )
