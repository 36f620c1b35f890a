"""Operators registered from data, in a process that does not have the module that defines them.

Lives here: the check of what a store says of an operator, and the registration. Not here: what a
stand-in answers (`answers`), how a graph document describes operators (`graphs.operators`). Called
by a replay's child, by the minifier's workers, and by nothing that a user's own program runs in.

A stand-in is opaque to the compiler where the operator was: it has the schema, the tags, the effect
and the kernels' keys of the recorded one. It runs nothing of the store. Its real kernel answers
with zeros, and leaves the arguments that the operator writes to as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._ops
import torch.library

from torchreel.errors import TorchreelError, UnsupportedError, UntrustedError
from torchreel.formats import namespaces
from torchreel.formats.operators.answers import (
    OperatorAnswer,
    OperatorCall,
    flattened,
    real_size,
)
from torchreel.formats.operators.formulas import Formula
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.torch_compat.operators import dispatcher

_NAME = re.compile(r"[A-Za-z_]\w{0,99}\.[A-Za-z_]\w{0,199}\.[A-Za-z_]\w{0,99}", re.ASCII)
_LONGEST_SCHEMA = 20_000
_KERNELS = ("CPU", "CUDA", "CompositeExplicitAutograd")
_made: dict[str, torch.library.Library] = {}
"""The stand-ins of this process; what is registered lasts as long as its library."""
_guessed: set[str] = set()


def register(table: Json) -> tuple[str, ...]:
    """Register a stand-in of each described operator that this process lacks; returns their names.

    Raises `UnsupportedError` for a description that is malformed, or of an operator in a namespace
    of torch's own, and `UntrustedError` for an operator that the compiler looked into: what it does
    is code.
    """
    found: list[str] = []
    formulas: list[Formula] = []
    refused: TorchreelError | None = None
    for name, data in as_object(table).items():
        if str(name) in _made:
            found.append(str(name))
        elif not _is_there(str(name)):
            try:
                described = _Described.of(str(name), data)
            except TorchreelError as error:
                refused = refused or error
                continue
            _register(described)
            formulas += described.formulas
            found.append(str(name))
    for formula in formulas:  # they may call any of those above
        formula.prepare()
    if refused is not None:
        raise refused
    return tuple(found)


def offer(table: Mapping[str, Json]) -> None:
    """Keep descriptions, from which `make` makes the stand-ins that a bundle asks for."""
    _offered.clear()
    _offered.update(table)


def make(path: str) -> bool:
    """Register the stand-ins of an operator that were offered; `path` may leave the overload out.

    Returns False where none was offered.  Raises what `register` does.
    """
    found = {name: data for name, data in _offered.items() if f"{name}.".startswith(f"{path}.")}
    return bool(register(found))


def give_fake_kernels(kernels: Mapping[str, Callable[..., object]]) -> None:
    """Let stand-ins of operators without a recorded call answer by the program's fake kernels.

    They are code: only for those who trust the store.
    """
    _fake_kernels.update(kernels)


_offered: dict[str, Json] = {}
_fake_kernels: dict[str, Callable[..., object]] = {}


def guessed() -> tuple[str, ...]:
    """Return operators whose needed backward is not recorded, and was taken to be zeros."""
    return tuple(sorted(_guessed))


def _is_there(name: str) -> bool:
    packet, _, overload = name.rpartition(".")
    namespace, _, operator = packet.partition(".")
    found = dispatcher.operator_by_name(namespace, operator)
    return found is not None and hasattr(found, overload)


@dataclass(frozen=True)
class _Described:
    """The description of an operator in a store, checked."""

    namespace: str
    name: str
    """With the overload, where it is not the default one."""
    schema: str
    """From the bracket of its arguments on."""
    tags: tuple[torch.Tag, ...]
    kernels: frozenset[str]
    calls: tuple[OperatorCall, ...]
    formulas: tuple[Formula, ...]
    python: bool
    fake: bool
    autograd: bool
    effect: str | None

    @property
    def path(self) -> str:
        """From `torch.ops` on, with the overload."""
        name, _, overload = self.name.partition(".")
        return f"{self.namespace}.{name}.{overload or 'default'}"

    @property
    def full_name(self) -> str:
        """As dispatchers write it: `namespace::name`."""
        return f"{self.namespace}::{self.name}"

    @classmethod
    def of(cls, name: str, data: Json) -> _Described:
        """Return the description of an operator.  Raises what `register` does."""
        if not isinstance(data, Mapping) or not _NAME.fullmatch(name):
            raise UnsupportedError(f"malformed description of an operator {name!a:.80}")
        if not namespaces.is_custom(f"op:{name}"):
            raise UnsupportedError(f"no stand-in is made of an operator of torch's own: {name!r}")
        kernels = frozenset(map(str, list_only(data.get("kernels"))))
        if data.get("decomposes") or kernels <= {"CompositeImplicitAutograd"}:
            raise UntrustedError(
                f"the operator {name!r} is one that the compiler looks into, so what it does is "
                "code; name the module that defines it with --import MODULE"
            )
        namespace, operator, overload = name.split(".")
        short = operator if overload == "default" else f"{operator}.{overload}"
        effect = data.get("effect")
        return cls(
            namespace,
            short,
            _schema(f"{namespace}::{short}", data.get("schema")),
            tuple(filter(None, map(_tag, list_only(data.get("tags"))))),
            kernels,
            tuple(map(OperatorCall.of, list_only(data.get("calls")))),
            tuple(map(Formula.of, list_only(data.get("formulas")))),
            data.get("python") is True and overload == "default",
            data.get("fake") is True,
            data.get("autograd") is True,
            str(effect) if effect is not None else None,
        )


def _schema(name: str, text: Json) -> str:
    """Return a schema without its name, which torch's own parser has read.

    Raises `UnsupportedError` where it is malformed, or of another operator.
    """
    if not isinstance(text, str) or len(text) > _LONGEST_SCHEMA or not text.startswith(f"{name}("):
        raise UnsupportedError(f"malformed schema of the operator {name!r}: {text!a:.80}")
    try:
        torch._C.parse_schema(text)
    except RuntimeError as error:
        raise UnsupportedError(f"malformed schema of the operator {name!r}") from error
    return text.removeprefix(name)


def _tag(name: Json) -> torch.Tag | None:
    found = getattr(torch.Tag, str(name), None) if str(name).isidentifier() else None
    return found if isinstance(found, torch.Tag) else None


def _register(described: _Described) -> None:
    library = torch.library.Library(described.namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    _made[described.path] = library
    if described.python:
        _define_in_python(described)
    else:
        _define(described, library)
    if described.effect is not None:
        dispatcher.register_effect(described.full_name, described.effect)


def _define_in_python(described: _Described) -> None:
    """Define an operator with `torch.library.custom_op`: it adds autograd and version counters."""
    stand_in = _StandIn(described)
    definition = torch.library.custom_op(
        described.full_name,
        stand_in.real,
        mutates_args=stand_in.written,
        schema=described.schema,
        tags=[tag for tag in described.tags if tag is not torch.Tag.pt2_compliant_tag],
    )
    if described.fake:
        definition.register_fake(stand_in.fake)
    if described.autograd:
        definition.register_autograd(stand_in.backward, setup_context=stand_in.setup_context)


def _define(described: _Described, library: Any) -> None:
    """Do as `torch.library.define` and `impl` do, or a library in C++."""
    stand_in = _StandIn(described)
    name, tags = described.name, described.tags
    library.define(f"{name}{described.schema}", tags=tags)
    for key in _KERNELS:
        if key in described.kernels:
            library.impl(name, stand_in.real, key)
    if described.kernels.isdisjoint(_KERNELS):
        library.impl(name, stand_in.real, "CPU")
    if described.fake:
        torch.library.register_fake(described.full_name, stand_in.fake, lib=library)
    elif "Meta" in described.kernels:
        library.impl(name, stand_in.meta, "Meta")
    if described.autograd:
        torch.library.register_autograd(
            described.full_name,
            stand_in.backward,
            setup_context=stand_in.setup_context,
            lib=library,
        )


class _StandIn:
    """The kernels of one stand-in."""

    def __init__(self, described: _Described) -> None:
        self._described = described
        self._schema = torch._C.parse_schema(f"{described.full_name}{described.schema}")
        self.written = [item.name for item in self._schema.arguments if item.is_write]
        """The arguments that the operator writes to."""

    def real(self, *args: Any, **kwargs: Any) -> Any:
        """Answer with zeros.

        Torch allows no operator that is defined in Python to return what shares memory with an
        argument, whatever its fake kernel answers.
        """
        aliases = not self._described.python
        return self._answer(args, kwargs, real_size, fill=True, aliases=aliases)

    def fake(self, *args: Any, **kwargs: Any) -> Any:
        """Answer with fake tensors."""
        kernel = _fake_kernels.get(self._described.path)
        if kernel is not None and not self._described.calls:
            return kernel(*args, **kwargs)
        return self._answer(args, kwargs, dispatcher.new_dynamic_size)

    def meta(self, *args: Any, **kwargs: Any) -> Any:
        """Answer with tensors of the device meta."""
        return self._answer(args, kwargs, real_size, device="meta")

    def _answer(self, args: Any, kwargs: Any, new_size: Any, **how: Any) -> Any:
        if not self._schema.returns:
            return None
        live = flattened(args, kwargs)
        call = _most_alike(self._described.calls, live)
        if call is None:
            raise UnsupportedError(
                f"the recording has no call of {self._described.full_name} with {len(live)} "
                "arguments, so no stand-in knows what it returns"
            )
        results = OperatorAnswer(call, live, new_size, **how).result()
        aliased = [self._argument(place, args, kwargs) for place in self._schema.returns]
        if all(argument is None for argument in aliased):
            return results
        if len(aliased) == 1:
            return aliased[0]
        return tuple(
            made if argument is None else argument
            for made, argument in zip(results, aliased, strict=True)
        )

    def _argument(self, place: Any, args: Any, kwargs: Any) -> Any:
        """Return the argument that a result is, by the schema; None for a view, or a new tensor."""
        if place.alias_info is None or not place.alias_info.is_write:
            return None
        for number, argument in enumerate(self._schema.arguments):
            info = argument.alias_info
            if info is not None and info.before_set == place.alias_info.before_set:
                return args[number] if number < len(args) else kwargs[argument.name]
        return None

    def setup_context(
        self, ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Any = None
    ) -> None:
        """Keep what a formula for the backward may use."""
        given = flattened(inputs, keyword_only_inputs or {})
        formula = next((f for f in self._described.formulas if f.is_for(given)), None)
        results = [output] if isinstance(output, torch.Tensor) else list(output or ())
        every = [*given, *results]
        used = _tensors_of(given) if formula is None else formula.saved(len(given))
        ctx.save_for_backward(*(every[place] for place in used))
        ctx.formula, ctx.used, ctx.count = formula, used, len(given)
        ctx.others = [None if isinstance(value, torch.Tensor) else value for value in every]
        ctx.shapes = [_shape(item) for item in inputs]

    def backward(self, ctx: Any, *grads: Any) -> Any:
        """Return the recorded backward graph, where this very call was recorded; else zeros."""
        values = list(ctx.others)
        for place, tensor in zip(ctx.used, ctx.saved_tensors, strict=True):
            values[place] = tensor
        given, results = values[: ctx.count], values[ctx.count :]
        if ctx.formula is not None:
            made = ctx.formula.run(given, results, grads)
        else:
            _guessed.add(self._described.full_name)
            made = [
                torch.zeros_like(value)
                if isinstance(value, torch.Tensor) and value.is_floating_point()
                else None
                for value in given
            ]
        found = iter(made)
        shaped = tuple(
            gradient if "Tensor" in str(argument.type) else None  # a list of numbers has none
            for argument, gradient in zip(
                self._schema.arguments, [_like(shape, found) for shape in ctx.shapes], strict=False
            )
        )
        return shaped if len(shaped) != 1 else shaped[0]


def _tensors_of(values: Sequence[object]) -> tuple[int, ...]:
    return tuple(at for at, value in enumerate(values) if isinstance(value, torch.Tensor))


def _shape(item: object) -> object:
    """Return None for an argument, a list of these for a list."""
    return [_shape(one) for one in item] if isinstance(item, (list, tuple)) else None


def _like(shape: Any, found: Any) -> Any:
    """Return one gradient for an argument; a list of them for a list."""
    return next(found) if shape is None else [_like(one, found) for one in shape]


def _most_alike(calls: Sequence[OperatorCall], live: Sequence[object]) -> OperatorCall | None:
    fitting = [call for call in calls if call.likeness(live) >= 0]
    return max(fitting, key=lambda call: call.likeness(live), default=None)
