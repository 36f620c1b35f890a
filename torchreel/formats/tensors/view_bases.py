"""The tensors of a document that are views, as far as its descriptions say, and their bases.

Lives here: the base of a view, and the tensors that a storage belongs to. Not here: making any of
them (`fakes`, `synthetic`), or writing lines that do (`minifier.scripts.inputs`).

A base may be an input itself, or not: it has a number (`object`) in both places. An input of which
nothing is said shares a storage with others without autograd knowing of it (`detach`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from torchreel.errors import UnsupportedError
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object

Description = Mapping[str, Json]


def base_of(description: Description) -> Description | None:
    """Return the description of the tensor that another is a view of; None for one that is no view.

    A view that has lost its storage, in a case that was reduced, is none any more.
    """
    base = as_object(description.get("view")).get("base")
    storage = description.get("storage")
    if not isinstance(base, Mapping) or not isinstance(storage, int):
        return None
    return base if base.get("storage") == storage and object_of(base) is not None else None


def base_of_extent(
    description: Description, extent: Callable[[Description], int]
) -> Description | None:
    """Return the base of a view; None where `extent` says that it is empty, or cannot say."""
    base = base_of(description)
    try:
        return base if base is not None and extent(base) else None
    except UnsupportedError:  # of a case that was reduced, and has lost the symbols
        return None


def object_of(description: Description) -> int | None:
    """Return the number of a tensor that may be the base of others, while it has a storage."""
    number = description.get("object")
    return number if isinstance(number, int) and "storage" in description else None


def with_bases(descriptions: Iterable[Json]) -> list[Description]:
    """Return the descriptions of tensors, each after that of its base."""
    found: list[Description] = []
    for description in descriptions:
        if isinstance(description, Mapping):
            base = base_of(description)
            found += [description] if base is None else [base, description]
    return found


def roots(descriptions: Iterable[Json]) -> Counter[int]:
    """Return the number of tensors, other than views, of each storage with several users."""
    users: Counter[int] = Counter()
    found: dict[int, set[tuple[str, int]]] = {}
    for place, description in enumerate(with_bases(descriptions)):
        storage = description.get("storage")
        if not isinstance(storage, int) or description.get("k") != "tensor":
            continue
        users[storage] += 1
        if base_of(description) is None:
            number = object_of(description)
            key = ("place", place) if number is None else ("object", number)
            found.setdefault(storage, set()).add(key)
    return Counter({number: len(keys) for number, keys in found.items() if users[number] > 1})


def is_computed_base(description: Description, known: Mapping[int, int]) -> bool:
    """Return True for the base of all that shares its storage, if autograd has a function for it.

    `known` is the result of `roots`.
    """
    storage = description.get("storage")
    alone = isinstance(storage, int) and known.get(storage) == 1
    computed = bool(description.get("requires_grad")) and not description.get("leaf", True)
    return alone and computed and base_of(description) is None
