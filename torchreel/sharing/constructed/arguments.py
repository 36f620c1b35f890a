"""Arguments of calls: the tagged tree, leaf by leaf."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch

from torchreel.errors import RefusedError
from torchreel.formats import targets
from torchreel.sharing import words_of_torch
from torchreel.sharing.constructed.scalars import (
    Symbols,
    constant_of,
    device_of,
    number_of,
    refused,
    whole,
)
from torchreel.sharing.pseudonyms import Pseudonyms
from torchreel.store.documents.jsontypes import Json

_EQUATIONS = ("fn:torch.functional.einsum", "fn:torch.einsum", "op:aten.einsum.default",
              "packet:aten.einsum")  # fmt: skip
_EQUATION = re.compile(r"[A-Za-z.,>\s-]{1,200}")
_SYMBOLIC = ("int", "float", "bool")
_MOST_NESTING = 50

Target = Callable[[str], str]


class CallArguments:
    """Makes the arguments of one graph's calls; `nodes` are the new names of its nodes."""

    def __init__(
        self, symbols: Symbols, pseudonyms: Pseudonyms, nodes: Mapping[str, str], target: Target
    ) -> None:
        self.symbols, self.pseudonyms, self.nodes = symbols, pseudonyms, nodes
        self._target = target

    def of_call(self, target: str, trees: Sequence[Json]) -> list[Json]:
        """Return the arguments of a call."""
        if target in _EQUATIONS and trees and isinstance(trees[0], str):
            return [equation(trees[0]), *map(self.of, trees[1:])]
        if target == "fn:builtins.getattr" and len(trees) == 2:
            return [self.of(trees[0]), attribute(trees[1])]
        return [self.of(tree) for tree in trees]

    def of(self, tree: Json, depth: int = 0) -> Json:
        """Return one argument."""
        if depth > _MOST_NESTING:
            raise refused("an argument", tree)
        if isinstance(tree, str):
            return self._text(tree)
        if isinstance(tree, list):
            return [self.of(item, depth + 1) for item in tree]
        if not isinstance(tree, Mapping):
            return number_of(tree)
        if len(tree) != 1:
            raise refused("an argument", tree)
        ((kind, data),) = tree.items()
        return self._tagged(str(kind), data, depth)

    def _tagged(self, kind: str, data: Json, depth: int) -> Json:
        if kind == "n":
            if data not in self.nodes:
                raise refused("the use of the node", data)
            return {"n": self.nodes[str(data)]}
        if kind in ("dtype", "layout", "memory_format"):
            return {kind: constant_of(kind, data)}
        if kind == "device":
            return {"device": device_of(data)}
        if kind == "fn":
            return {"fn": self._target(str(data))}
        if kind == "ellipsis":
            return {"ellipsis": True}
        if kind == "CheckpointPolicy" and data in words_of_torch.words().names:
            return {kind: data}
        if kind == "sym" and isinstance(data, Mapping) and data.get("type") in _SYMBOLIC:
            expr = self.symbols.expression(data.get("expr"))
            return {"sym": {"type": str(data["type"]), "expr": expr}}
        if kind in ("t", "size", "slice", "range", "d") and isinstance(data, list):
            return {kind: self._items(kind, data, depth)}
        return number_of({kind: data})

    def _items(self, kind: str, data: list[Json], depth: int) -> Json:
        if kind == "range":
            return [whole(item) for item in data]
        if kind != "d":
            return [self.of(item, depth + 1) for item in data]
        pairs = [item for item in data if isinstance(item, list) and len(item) == 2]
        return [[self.of(key, depth + 1), self.of(value, depth + 1)] for key, value in pairs]

    def _text(self, text: str) -> str:
        """Return a text that is an option of torch's; any other gets a pseudonym."""
        return text if text in words_of_torch.options() else self.pseudonyms.of("t", text)


def equation(text: str) -> str:
    """Return an equation of einsum in the first letters of the alphabet."""
    if not _EQUATION.fullmatch(text):
        raise refused("the equation", text)
    letters = dict.fromkeys(filter(str.isalpha, text))
    given = dict(zip(letters, string.ascii_letters, strict=False))
    return "".join(given.get(letter, letter) for letter in text)


def attribute(data: Json) -> str:
    """Return the name of an attribute or a method that every tensor has."""
    if not isinstance(data, str) or data.startswith("__") or not hasattr(torch.Tensor, data):
        raise refused("the attribute", data)
    return data


def target_of_torch(text: str) -> str:
    """Return a target that is torch's own, by its qualified name."""
    try:
        targets.decode_target(text)
    except RefusedError as error:
        raise refused("the target", text) from error
    return text


def keyword(name: str) -> str:
    """Return the name of a parameter that a function of torch has."""
    if not name.isidentifier() or name not in words_of_torch.words().names | _schema_names():
        raise refused("the keyword", name)
    return name


@cache
def _schema_names() -> frozenset[str]:
    return frozenset(
        argument.name for schema in torch._C._jit_get_all_schemas() for argument in schema.arguments
        if schema.name.startswith(("aten::", "prims::", "inductor::", "quantized::"))
    )  # fmt: skip
