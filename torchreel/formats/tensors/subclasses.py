"""Traceable wrapper subclasses by name: which class a described tensor may be made of.

Lives here: the way from a name in a store to a class that has `__tensor_unflatten__`.  Not here:
the inner tensors (`fakes`, `synthetic`).  A name resolves only to one of a closed list of torch's
own, or to a class outside torch that is loaded by now: a name in a store imports nothing
(`--import MODULE` does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from torchreel.errors import UnsupportedError, UntrustedError
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import distributed
from torchreel.torch_compat.tensors import fake_tensors

_REFUSALS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
"""Exceptions that the code of a class may raise for values that it was not made with."""


KEY = "subclass."
"""Prefix of the names under which a checkpoint keeps classes of the program's own."""


def names_in(description: Json) -> Iterator[str]:
    """Yield the classes that are named in a description of inputs and are none of torch's."""
    if isinstance(description, (list, tuple)):
        for item in description:
            yield from names_in(item)
    elif isinstance(description, Mapping):
        name = str(description.get("type"))
        if description.get("k") == "subclass" and name.partition(".")[0] != "torch":
            yield name
        yield from names_in(list(description.values()))


def resolve(name: str) -> Any:
    """Return the class of that name (`module.qualname`).

    Raises `UntrustedError` for one that is not loaded here, `UnsupportedError` for one of torch's
    that is no plain wrapper.
    """
    own = fake_tensors.own_subclass(name)
    if own is not None:
        return own
    if name.partition(".")[0] == "torch":
        raise UnsupportedError(f"a tensor of class {name!r:.80} is not rebuilt from a store")
    for cls in _loaded(torch.Tensor):
        if f"{cls.__module__}.{cls.__qualname__}" == name and hasattr(cls, "__tensor_unflatten__"):
            return cls
    raise UntrustedError(
        f"the tensor subclass {name!r:.80} is not loaded in this process; name the module that "
        "defines it with --import MODULE, or use the one that was kept with the compile: --trust"
    )


def _loaded(cls: type) -> Iterator[type]:
    below: list[type] = cls.__subclasses__()
    for found in below:
        yield found
        yield from _loaded(found)


def unflatten(
    name: str, inner: Mapping[str, object], context: object, size: Any, stride: Any
) -> torch.Tensor:
    """Return a tensor of the class of that name.

    Raises `UnsupportedError` when the class refuses.
    """
    cls = resolve(name)
    try:
        made = cls.__tensor_unflatten__(
            dict(inner), context, distributed.outer_size(context, size), tuple(stride)
        )
    except _REFUSALS as error:
        raise UnsupportedError(
            f"a tensor of class {name!r:.80} can't be made: {error!s:.200}"
        ) from error
    if not isinstance(made, torch.Tensor):
        raise UnsupportedError(f"class {name!r:.80} made no tensor")
    return made
