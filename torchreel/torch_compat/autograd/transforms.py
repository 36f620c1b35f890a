"""The functorch transforms that are open around a compile: vmap and grad, called from outside.

Lives here: what a transform and a tensor inside of it are, as data, and both back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torchreel.store.documents.jsontypes import Json


def open_transforms() -> list[str]:
    """Return the functorch transforms that are open, outermost first."""
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    return [str(layer.key()) for layer in retrieve_all_functorch_interpreters()]


def open_levels() -> list[Json]:
    """Return the open transforms as data for `opened`; [] if one is neither vmap nor grad."""
    from torch._functorch import pyfunctorch

    found: list[Json] = []
    for layer in pyfunctorch.retrieve_all_functorch_interpreters():
        if isinstance(layer, pyfunctorch.VmapInterpreter) and type(layer.batch_size()) is int:
            found.append({"vmap": layer.batch_size(), "randomness": layer.randomness()})
        elif isinstance(layer, pyfunctorch.GradInterpreter):
            found.append({"grad": layer.level()})
        else:
            return []
    return found


@contextmanager
def opened(levels: Sequence[Json]) -> Iterator[None]:
    """Open transforms again: they have the same levels where none was open before."""
    from torch._functorch.eager_transforms import grad_increment_nesting
    from torch._functorch.vmap import vmap_increment_nesting

    with ExitStack() as stack:
        for level in levels:
            if isinstance(level, Mapping) and "vmap" in level:
                size, randomness = int(str(level["vmap"])), str(level["randomness"])
                stack.enter_context(vmap_increment_nesting(size, randomness))
            else:
                stack.enter_context(grad_increment_nesting())
        yield


def unwrapped(tensor: torch.Tensor) -> tuple[torch.Tensor, list[Json]]:
    """Return the tensor inside of all levels, and the levels, outermost first.

    A level that was left already is none: such a tensor comes back as it is.
    """
    functorch = torch._C._functorch
    inner = tensor
    levels: list[Json] = []
    while functorch.is_functorch_wrapped_tensor(inner):
        level = functorch.maybe_get_level(inner)
        if level < 1:
            return tensor, []
        batched = functorch.is_batchedtensor(inner)
        found: dict[str, Json] = {
            "level": level, "bdim": functorch.maybe_get_bdim(inner) if batched else None
        }  # fmt: skip
        if not batched and inner.requires_grad:
            found["leaf"] = inner.is_leaf
        levels.append(found)
        inner = functorch.get_unwrapped(inner)
    return inner, levels


def wrapped(tensor: torch.Tensor, levels: Sequence[Json]) -> torch.Tensor:
    """Return a tensor that is wrapped as `unwrapped` found it; the levels have to be open."""
    from torch._functorch.eager_transforms import enable_inplace_requires_grad

    for entry in reversed(levels):
        assert isinstance(entry, Mapping)
        level, bdim = int(str(entry["level"])), entry["bdim"]
        if bdim is None:
            tensor = torch._C._functorch._wrap_for_grad(tensor, level)
            if "leaf" in entry:
                with torch.enable_grad(), enable_inplace_requires_grad(True):
                    tensor = tensor.requires_grad_()
                    tensor = tensor if entry["leaf"] else tensor.clone()
        else:
            tensor = torch._C._functorch._add_batch_dim(tensor, int(str(bdim)), level)
    return tensor


def all_wrapped(values: Any, found: Mapping[int, Sequence[Json]]) -> Any:
    """Return arguments with those tensors wrapped that have levels, by the id of the tensor."""
    from torch.utils._pytree import tree_map_only

    return tree_map_only(
        torch.Tensor, lambda tensor: wrapped(tensor, found.get(id(tensor), ())), values
    )
