"""Placements and specs of distributed tensors, and names of groups, checked as data.

torch prints these as they are, and what FX prints of an argument becomes code.  So each field is
checked for what it may be before anything is made of it: a number, a size, a word.  Not here: what
is made (`node_arguments`, `tensors.meshes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchreel.errors import ForbiddenError
from torchreel.patterns import lazy_text
from torchreel.store.documents.jsontypes import Json

_WORD = lazy_text(r"[a-z_]{1,20}")
_NAME = lazy_text(r"[A-Za-z0-9_.:-]{1,200}")
_MOST = 64
"""Dimensions of a tensor or of a mesh."""


def check_name(name: Json) -> str:
    """Return the name of a process group or of a dimension of a mesh.

    Raises `ForbiddenError` for other text: names come into generated code.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ForbiddenError(f"{name!a:.60} is no name of a group or of a dimension")
    return name


def check_parts(data: Json) -> None:
    """Raise `ForbiddenError` for a class or fields that no placement and no spec has."""
    name, *fields = data if isinstance(data, list) and data else [None]
    known = _FIELDS.get(name) if isinstance(name, str) else None
    if known is None or len(known) != len(fields):
        raise ForbiddenError(f"a distributed tensor has no {name!a:.40} with {len(fields)} fields")
    for is_one, field in zip(known, fields, strict=True):
        if not is_one(field):
            raise ForbiddenError(f"{field!a:.60} is no field of a {name}")


def _is_int(tree: Json) -> bool:
    return type(tree) is int and -(1 << 62) < tree < 1 << 62


def _is_number(tree: Json) -> bool:
    return _is_int(tree) or (isinstance(tree, Mapping) and set(tree) == {"sym"})


def _is_word(tree: Json) -> bool:
    return tree is None or (isinstance(tree, str) and _WORD.fullmatch(tree) is not None)


def _is_size(tree: Json) -> bool:
    if not isinstance(tree, Mapping) or len(tree) != 1:
        return False
    ((tag, items),) = tree.items()
    whole = tag in ("t", "size") and isinstance(items, list) and len(items) <= _MOST
    return whole and all(map(_is_number, items))  # type: ignore[arg-type]


def _is_size_or_none(tree: Json) -> bool:
    return tree is None or _is_size(tree)


def _is_dtype(tree: Json) -> bool:
    if not isinstance(tree, Mapping) or set(tree) != {"dtype"}:
        return False
    name = tree["dtype"]
    return isinstance(name, str) and name.isidentifier()


_FIELDS: Mapping[str, tuple[Callable[[Json], bool], ...]] = {
    "Replicate": (),
    "Shard": (_is_int,),
    "_StridedShard": (_is_int, _is_number),
    "Partial": (_is_word,),
    "_MaskPartial": (_is_word, _is_size_or_none, _is_int),
    "TensorMeta": (_is_size, _is_size, _is_dtype),
    "ShardOrderEntry": (_is_int, _is_size),
}
"""The check of each field, by class."""
