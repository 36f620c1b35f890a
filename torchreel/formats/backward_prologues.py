"""The prologue of an AOTAutograd backward (it runs before the graph), as data and back.

Compiled autograd copies the backward graph of a compiled function into its own, and puts one call
before it: the prologue chooses the gradients that the graph takes, and gives each the memory format
that it was compiled for.

Lives here: the prologue as the text of a target.  Not here: targets in general (`targets`).  Called
by `targets`.

torch writes a prologue from the metadata of the function that it compiled.  Those facts are what is
kept, and torch writes it again.  What they say is numbers and flags: none of it is code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from torchreel.errors import UnsupportedError
from torchreel.store.documents.jsontypes import Json, exact_json, parse_json
from torchreel.torch_compat.autograd import compiled_autograd

TAG = "prologue:"
_MOST = 1 << 16
"""Gradients of one backward; torch writes a line for each."""


def encode(function: object) -> str:
    """Return a prologue as text; "" for another function, and for one that is not data alone.

    One that takes tensor subclasses apart runs their code.
    """
    metadata = compiled_autograd.prologue_metadata(function)
    if metadata is None:
        return ""
    formats = [_encode_format(getattr(meta, "memory_format", None)) for meta in
               metadata.subclass_tangent_meta]  # fmt: skip
    if None in formats:
        return ""
    facts: dict[str, Json] = {
        "inputs": [
            _is_kept(metadata.input_info[index]) for index in metadata.mutated_inp_runtime_indices
        ],
        "outputs": [compiled_autograd.has_tangent(info) for info in metadata.output_info],
        "bases": metadata.num_intermediate_bases,
        "tokens": metadata.num_backward_tokens,
        "rng": bool(metadata.is_rng_op_functionalized),
        "deterministic": metadata.deterministic,
        "mutates": bool(metadata.indices_of_inputs_that_requires_grad_with_mutations_in_bw),
        "formats": formats,
    }
    return TAG + exact_json(facts, sort_keys=True).decode()


def _is_kept(info: Any) -> bool:
    return bool(info.mutates_data and info.requires_grad)


def _encode_format(found: Any) -> Json:
    """Return the memory format of a gradient: a name, or its sizes and strides."""
    if found is None or found.memory_format is not None:
        return None if found is None else str(found.memory_format).removeprefix("torch.")
    numbers = [found.size, found.stride]
    if any(type(number) is not int for row in numbers for number in row):
        return None
    return [list(row) for row in numbers]


def decode(text: str) -> Callable[..., object]:
    """Return the prologue that torch writes from these facts.

    Raises `UnsupportedError` where they are malformed, and in a torch that writes none.
    """
    try:
        facts = parse_json(text.removeprefix(TAG).encode())
    except ValueError as error:
        raise UnsupportedError(f"the prologue of a backward is not JSON: {error}") from error
    if not isinstance(facts, Mapping):
        raise UnsupportedError(f"malformed prologue {text!r:.80}")
    inputs, outputs = _flags(facts, "inputs"), _flags(facts, "outputs")
    bases, formats = _count(facts, "bases"), facts.get("formats")
    kept = sum(inputs) + sum(outputs) + bases
    if not isinstance(formats, list) or len(formats) != kept:
        raise UnsupportedError(f"a prologue of {kept} gradients has other formats than these")
    deterministic = facts.get("deterministic")
    return compiled_autograd.prologue(
        SimpleNamespace(
            mutated_inp_runtime_indices=list(range(len(inputs))),
            num_mutated_inp_runtime_indices=len(inputs),
            input_info=[SimpleNamespace(mutates_data=flag, requires_grad=flag) for flag in inputs],
            num_outputs=len(outputs),
            output_info=[compiled_autograd.output_with_tangent(flag) for flag in outputs],
            num_intermediate_bases=bases,
            num_backward_tokens=_count(facts, "tokens"),
            is_rng_op_functionalized=bool(facts.get("rng")),
            deterministic=None if deterministic is None else bool(deterministic),
            indices_of_inputs_that_requires_grad_with_mutations_in_bw=[0] * bool(
                facts.get("mutates")
            ),
            subclass_tangent_meta=[
                SimpleNamespace(memory_format=_decode_format(found)) for found in formats
            ],
            traced_tangents_descs=[None] * kept,
            compile_id_str=None,
            tangent_source_stack_traces=None,
        )
    )  # fmt: skip


def _flags(facts: Mapping[str, Json], key: str) -> list[bool]:
    found = facts.get(key)
    if not isinstance(found, list) or len(found) > _MOST:
        raise UnsupportedError(f"a prologue has no list {key!r}")
    return [bool(flag) for flag in found]


def _count(facts: Mapping[str, Json], key: str) -> int:
    found = facts.get(key)
    if type(found) is not int or not 0 <= found <= _MOST:
        raise UnsupportedError(f"a prologue has no number {key!r}")
    return found


def _decode_format(found: Json) -> object:
    if isinstance(found, str):
        named = getattr(torch, found, None)
        if isinstance(named, torch.memory_format):
            return compiled_autograd.memory_format_of_tangent(memory_format=named)
    elif isinstance(found, list) and len(found) == 2:
        size, stride = (_numbers(row) for row in found)
        if len(size) == len(stride):
            return compiled_autograd.memory_format_of_tangent(size=size, stride=stride)
    raise UnsupportedError(f"malformed memory format of a gradient {found!r:.80}")


def _numbers(row: Json) -> tuple[int, ...]:
    if isinstance(row, list) and all(type(number) is int for number in row):
        return tuple(int(str(number)) for number in row)
    raise UnsupportedError(f"malformed sizes of a gradient {row!r:.80}")
