"""Checks text in the arguments of a call: it may stand where torch takes text, and nowhere else.

Lives here: the places, by the schemas of operators and the signatures of functions, and the form of
the text.  Called by `graphs`.

Text is an option (`mode="bilinear"`), an equation of einsum, a device, or the message of an
assertion.  None but a message has brackets or quotes in it: nothing that is a program.  Inductor
writes messages into generated code, some as they are: between `"` in C++, which stands between
three quotes in Python, and into comments.  So none may end a line or such a string.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import torch

from torchreel.errors import ForbiddenError
from torchreel.store.documents.jsontypes import Json

_OPTION = re.compile(r"[\w .,:;>+*-]{0,200}")
_FIELDS = re.compile(r"\{\w*\}")
_MESSAGES = frozenset({"assert_msg", "message", "msg", "error_message"})
_ENDS = ('"', "\\", "'''", "??")
"""Ends of a string of C++ or Python, or what escapes one (`??/` is a backslash in old C++)."""
_TEXTUAL = ("str", "Device", "device", "Any")


def check_option(text: str) -> None:
    """Refuse a text that is more than a word or an equation."""
    if not _OPTION.fullmatch(text):
        raise ForbiddenError(f"an option of a function is made of words, found {text!r:.80}")


def check_message(text: str) -> None:
    """Refuse a text that would not stay within a string of generated code, or a comment."""
    if not text.isprintable() or any(end in text for end in _ENDS):
        raise ForbiddenError(f'a message has no line breaks, " or \\ in it, found {text!r:.80}')


def check_operator(name: str, args: Sequence[Json], kwargs: Mapping[str, Json]) -> None:
    """Refuse text where the schemas of an operator (`aten::add`) take none."""
    _check(name, _texts(args, kwargs), schema_places(name))


def check_method(name: str, args: Sequence[Json], kwargs: Mapping[str, Json]) -> None:
    """Refuse text where a method of tensors takes none."""
    places = _PLACES.get(name) or schema_places(f"aten::{name}")
    _check(name, _texts(args, kwargs), places)


def check_function(
    name: str, function: object, args: Sequence[Json], kwargs: Mapping[str, Json]
) -> None:
    """Refuse text where a function takes none."""
    texts = list(_texts(args, kwargs))
    if texts:
        _check(name, texts, _PLACES.get(name) or _function_places(name, function))


def check_higher_order(name: str, args: Sequence[Json], kwargs: Mapping[str, Json]) -> None:
    """Refuse text that is more than options, of which a higher-order operator may have any."""
    for _, text in _texts(args, kwargs):
        if name != "print":
            check_option(text)
            continue
        check_message(text)
        if set(_FIELDS.sub("", text)) & set("{}"):
            raise ForbiddenError(f"a text to print has plain fields only, found {text!r:.80}")


def _texts(args: Sequence[Json], kwargs: Mapping[str, Json]) -> Iterator[tuple[int | str, str]]:
    """Yield the texts of a call, with the place or the keyword of the argument."""
    placed: list[tuple[int | str, Json]] = [*enumerate(args), *kwargs.items()]
    for place, tree in placed:
        for text in texts_of(tree):
            yield place, text


def texts_of(tree: Json) -> Iterator[str]:
    """Yield the literal texts in an argument."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for held in tree:
            yield from texts_of(held)
    elif isinstance(tree, Mapping):
        for tag, data in tree.items():
            if tag in ("t", "d", "size", "slice"):
                yield from texts_of(data)


def _check(name: str, texts: Iterable[tuple[int | str, str]], places: frozenset[int | str]) -> None:
    for place, text in texts:
        if place not in places:
            raise ForbiddenError(f"{name!r:.60} takes no text there, found {text!r:.80}")
        check = check_message if f"message {place}" in places else check_option
        check(text)


@cache
def schema_places(name: str) -> frozenset[int | str]:
    """Return the places and keywords at which an overload of an operator takes text."""
    found: set[int | str] = set()
    for schema in torch._C._jit_get_schemas_for_operator(name):
        for place, argument in enumerate(schema.arguments):
            if any(word in str(argument.type) for word in _TEXTUAL):
                found |= _at(place, argument.name)
    return frozenset(found)


def _at(place: int, name: str) -> set[int | str]:
    own: set[int | str] = {place, name}
    return own | {f"message {place}", f"message {name}"} if name in _MESSAGES else own


# Without a schema or a signature; the place of the text, and the keyword.
_PLACES: Mapping[str, frozenset[int | str]] = {
    "torch._C._log_api_usage_once": frozenset({0}),
    "torch._C._autograd._saved_tensors_hooks_disable": frozenset(_at(0, "error_message")),
    "type": frozenset({1, "dtype"}),  # x.type("torch.DoubleTensor")
}


@cache
def _function_places(name: str, function: object) -> frozenset[int | str]:
    attribute = name.rpartition(".")[2]
    found = set(schema_places(f"aten::{attribute}"))
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # written in C: the schema says it, but for the device
        return frozenset(found | {"device", "device_type"})
    for place, parameter in enumerate(parameters):
        if _takes_text(parameter):
            found |= _at(place, parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            found |= set(range(place, 64))
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= {"mode", "reduction", "device"}
    return frozenset(found)


def _takes_text(parameter: inspect.Parameter) -> bool:
    """Return True if a parameter of a function takes text, by its annotation or its default."""
    annotation = str(parameter.annotation)
    bare = parameter.annotation is parameter.empty
    return (
        isinstance(parameter.default, str)
        or parameter.name in _MESSAGES
        or "str" in re.findall(r"\w+", annotation)
        or "device" in re.findall(r"\w+", f"{annotation} {parameter.name}".lower())
        or (bare and parameter.default in (None, parameter.empty))
    )
