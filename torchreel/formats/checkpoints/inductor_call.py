"""The arguments with which AOTAutograd calls Inductor for one graph, as data and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

import msgspec

from torchreel.errors import RefusedError
from torchreel.formats import node_arguments
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object
from torchreel.store.reading.typed import convert


class _Arguments(TypedDict, total=False):
    """The arguments of `compile_fx_inner` besides the graph and its inputs.

    Types are held to, since Inductor takes any true value for True and writes some of these into
    the program that it generates.  Boxes are described by what they hold.
    """

    static_input_idxs: list[int] | None
    is_backward: bool
    graph_id: int | None
    cpp_wrapper: bool
    fx_wrapper: bool
    is_inference: bool
    layout_opt: bool | None
    cudagraphs: bool | None
    boxed_forward_device_index: int | None
    compile_region_name: str | None


_BOXED = ("cudagraphs", "boxed_forward_device_index")
_NAMES = list[Annotated[str, msgspec.Meta(pattern=r"\A\w+\Z")]]


def encode_arguments(kwargs: Mapping[str, Any]) -> dict[str, Json]:
    """Describe the keyword arguments of a call of `compile_fx_inner`, but for callables."""
    return {
        key: node_arguments.encode_value(_unboxed(key, value))
        for key, value in kwargs.items()
        if key in _Arguments.__annotations__
    }


def _unboxed(key: str, value: Any) -> Any:
    if key in _BOXED and value is not None:
        return value.value
    if key == "static_input_idxs" and value is not None:
        return list(value)
    return value


def decode_arguments(described: Json) -> dict[str, object]:
    """Return the described arguments.  Raises RefusedError where one has another type."""
    pairs = as_object(described).items()
    decoded = {key: node_arguments.decode_value(value, _no_leaf) for key, value in pairs}
    return dict(_held(decoded, _Arguments, "an argument of Inductor"))


def decode_graph_name(described: Json) -> list[str] | None:
    """Return the name that AOTAutograd gave to the graph, which Inductor writes into its program.

    Raises RefusedError for anything but letters, digits and underscores.
    """
    if described is None:
        return None
    return list(_held(described, _NAMES, "the name of a graph"))


def _held(value: object, kind: Any, what: str) -> Any:
    try:
        return convert(value, kind)
    except ValueError as error:
        raise RefusedError(f"{what} is not of its type: {error}") from error


def _no_leaf(kind: str, value: Json) -> object:
    raise RefusedError(f"an argument of Inductor cannot be of kind {kind!r}")
