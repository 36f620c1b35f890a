"""Values of JSON documents as the kind that a reader expects: an object, a list.

Lives here: what is done with a value of another kind.  `as_...` and `list_only` take it for an
empty one, since a document may be damaged, or older; `required_...` refuse it.  Not here: what a
value means.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchreel.errors import UnsupportedError
from torchreel.store.documents.jsontypes import Json


def as_object(value: object) -> Mapping[str, Json]:
    """Return `value` if it is an object, else an empty one."""
    # Nearly all are dictionaries, which is decided ten times as fast.
    return value if isinstance(value, (dict, Mapping)) else {}


def as_list(value: object) -> list[Json]:
    """Return a list of the items of `value` if it is a list or a tuple, else an empty list."""
    return list(value) if isinstance(value, (list, tuple)) else []


def list_only(value: object) -> list[Json]:
    """Return `value` itself if it is a list, else an empty one: a tuple is none."""
    return value if isinstance(value, list) else []


def required_list(document: Mapping[str, Json], key: str, what: str) -> list[Json]:
    """Return a list of a document.  Raises UnsupportedError, which calls it `what`, if it has
    none.
    """
    value = document.get(key)
    if not isinstance(value, list):
        raise UnsupportedError(f"{what} has no list {key!r}")
    return value


def required_object(document: Mapping[str, Json], key: str, what: str) -> Mapping[str, Json]:
    """Return an object of a document.  Raises UnsupportedError, which calls it `what`, if it has
    none.
    """
    value = document.get(key)
    if not isinstance(value, Mapping):
        raise UnsupportedError(f"{what} has no object {key!r}")
    return value
