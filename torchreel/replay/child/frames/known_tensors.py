"""Tensors that several bundles of a recording have: one object in the process that loads them.

Each has a token: its id in the recorded process, with the life of its storage.  A guard on the
identity of a tensor, as on the state of an optimizer, holds or fails in a replay as it did.  Lives
here: which tensor of an earlier bundle is one of the next.  Not here: how a tensor is made
(`bundles`), and what a token is (`torchreel.recorder.frames.lives`).

In one storage an id may be taken twice.  What it stands for has to look the same, share memory with
the same others, and be as it was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchreel.store.documents.jsontypes import Json, canonical_json
from torchreel.store.documents.kinds import as_object


@dataclass(frozen=True)
class _Kept:
    """A tensor that a bundle had."""

    layout: bytes
    sharers: frozenset[int | None]
    """The tokens of all tensors in its memory, its own among them; None for one without."""
    base: int | None
    tensor: Any


_kept: dict[int, _Kept] = {}
"""By token."""


def tokens() -> frozenset[int]:
    """Return the tokens that bundles had so far."""
    return frozenset(_kept)


def of_earlier_bundles(descriptions: Sequence[Json]) -> dict[int, Any]:
    """Return the tensors that are there already, by their places; of those in one memory all or
    none.

    Their gradients and marks are those of another frame, and taken off.
    """
    found: dict[int, Any] = {}
    for group in _by_storage(descriptions).values():
        if all(_is_known(descriptions, place, group) for place in group):
            found.update({place: _tensor_of(descriptions[place]) for place in group})
    for tensor in found.values():
        _clean(tensor)
    return found


def keep(descriptions: Sequence[Json], tensors: Sequence[object]) -> None:
    """Note the tensors of a bundle."""
    for group in _by_storage(descriptions).values():
        sharers = frozenset(_tokens(descriptions, group))
        for place in group:
            token = _token(descriptions[place])
            if token is not None:
                base = _base(descriptions, place)
                _kept[token] = _Kept(_layout(descriptions[place]), sharers, base, tensors[place])


def put_back(
    descriptions: Sequence[Json],
    tensors: list[object],
    replaced: Sequence[tuple[object, object]],
    before: frozenset[int],
) -> bool:
    """Replace tensors of a bundle by those that an earlier compile made in the same places.

    An example is the state of an optimizer: its first step makes it while it is traced. Two tensors
    at one place of one object are taken for the same tensor, if neither had a token `before`.
    Returns True if any was replaced.
    """
    named = {id(_kept[token].tensor) for token in before if token in _kept}
    old = {id(new): tensor for new, tensor in replaced if id(tensor) not in named}
    found = False
    for group in _by_storage(descriptions).values():
        (place, *others) = group
        tensor, token = tensors[place], _token(descriptions[place])
        made = old.get(id(tensor))
        if others or made is None or token is None or token in before:
            continue
        if _base(descriptions, place) is None and _is_like(made, tensor):
            tensors[place], found = made, True
    if found:
        keep(descriptions, tensors)
    return found


def _by_storage(descriptions: Sequence[Json]) -> dict[object, list[int]]:
    """Return the places of descriptions, those that share memory together."""
    groups: dict[object, list[int]] = {}
    for place, item in enumerate(descriptions):
        if isinstance(item, Mapping):
            number = item.get("storage")
            key = number if isinstance(number, int) else ("alone", place)
            groups.setdefault(key, []).append(place)
    return groups


def _is_known(descriptions: Sequence[Json], place: int, group: Sequence[int]) -> bool:
    token = _token(descriptions[place])
    kept = None if token is None else _kept.get(token)
    return (
        kept is not None
        and kept.layout == _layout(descriptions[place])
        and kept.sharers == frozenset(_tokens(descriptions, group))
        and kept.base == _base(descriptions, place)
        and _is_as_described(kept.tensor, descriptions[place])
    )


def _is_as_described(tensor: Any, description: Json) -> bool:
    """Return False for a tensor that a step has changed since it was made."""
    import torch

    assert isinstance(description, Mapping)
    if not isinstance(tensor, torch.Tensor):
        return True
    here: list[object] = [list(tensor.shape), tensor.requires_grad, tensor.is_leaf]
    then = [description.get(key) for key in ("size", "requires_grad", "leaf")]
    if tensor.layout is torch.strided and "stride" in description:
        here += [list(tensor.stride()), tensor.storage_offset()]
        then += [description["stride"], description.get("offset", 0)]
    return here == then


def _is_like(one: Any, other: Any) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("shape", "dtype", "device", "requires_grad", "is_leaf", "layout")
    )


def _clean(tensor: Any) -> None:
    for name in [*getattr(tensor, "__dict__", ())]:
        if name != "_is_param":  # by which torch tells parameters that are no plain tensors
            del vars(tensor)[name]
    if getattr(tensor, "is_leaf", False):
        tensor.grad = None


def _layout(description: Json) -> bytes:
    """Return a description without the numbers that mean something in one bundle alone."""
    assert isinstance(description, Mapping)
    numbers = ("base", "object", "storage")
    return canonical_json({key: item for key, item in description.items() if key not in numbers})


def _base(descriptions: Sequence[Json], place: int) -> int | None:
    """Return the token of the tensor that another is a view of; -1 for one without a token."""
    description = descriptions[place]
    base = as_object(description).get("base")
    if not isinstance(base, int) or not 0 <= base < len(descriptions):
        return None
    return _token(descriptions[base]) or -1


def _tokens(descriptions: Sequence[Json], places: Sequence[int]) -> list[int | None]:
    return [_token(descriptions[place]) for place in places]


def _tensor_of(description: Json) -> Any:
    token = _token(description)
    assert token is not None, "it is known"
    return _kept[token].tensor


def _token(description: Json) -> int | None:
    if not isinstance(description, Mapping) or "levels" in description:
        return None
    token = description.get("token")
    return token if isinstance(token, int) else None
