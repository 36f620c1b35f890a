"""The calls that Dynamo writes into a graph for NumPy code, as data and back.

Dynamo traces NumPy code as calls of `torch._numpy`, which computes the same on tensors.  Each call
is an object around a function, an operator of Python or the name of a method, and `T` and the like
are read by a function of Dynamo's.

Lives here: such an object as the text of a target, what it may be made around, and the check of a
call.  Not here: targets in general (`targets`).  Called by `targets` and `graphs.check`.

What is wrapped is on closed lists that are computed from torch: the functions that NumPy has too
and whose results are arrays, the operators that graphs call anyway, the methods of arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from torchreel.errors import ForbiddenError, UnsupportedError
from torchreel.formats.allowed import functions, strings, value_kinds
from torchreel.formats.allowed.value_kinds import ValueKind
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.graph_calls import numpy_code

TAG = "numpy:"
FUNCTION, OPERATOR, METHOD, ATTRIBUTE = "function", "operator", "method", "attribute"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# They give back an object that describes a dtype, change what later calls give back, or take an
# array over from any object that offers one.
_DENIED_FUNCTIONS = _words("result_type common_type min_scalar_type set_default_dtype from_dlpack")
# Modules of `torch._numpy` whose functions are about dtypes.
_OF_DTYPES = ("torch._numpy._dtypes", "torch._numpy._getlimits")
_DUNDERS = frozenset(
    f"__{name}__"
    for name in _words(
        "abs invert pos neg gt lt ge le eq ne index bool int float complex len contains getitem "
        "setitem add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv floordiv "
        "rfloordiv ifloordiv pow rpow ipow mod rmod imod and rand iand or ror ior xor rxor ixor "
        "lshift rlshift ilshift rshift rrshift irshift matmul rmatmul imatmul divmod rdivmod"
    )
)
ATTRIBUTES = _words("T real imag flat shape size strides ndim itemsize")
"""The attributes of arrays whose values are data; `data` is an address."""


def encode(target: object) -> str:
    """Return a call of NumPy's as text; "" for another target, and for what is on no list."""
    kind, wrapped = numpy_code.numpy_wrapped(target)
    if kind == METHOD:
        return f"{TAG}{kind}:{wrapped}" if wrapped in methods() else ""
    if kind == ATTRIBUTE:
        return f"{TAG}{kind}"
    name = _names().get(id(wrapped)) if kind == FUNCTION else _name_of_operator(wrapped)
    return f"{TAG}{kind}:{name}" if kind and name else ""


def decode(text: str) -> Callable[..., object]:
    """Return the target that Dynamo makes: a new one for each call.

    Raises `UnsupportedError` for what is on no list.
    """
    kind, name = parts(text)
    wrapped: object = None
    if kind == FUNCTION:
        wrapped = array_functions().get(name)
    elif kind == OPERATOR:
        wrapped = _operator(name)
    elif kind == METHOD:
        wrapped = name if name in methods() else None
    elif kind == ATTRIBUTE and not name:
        wrapped = ""
    if wrapped is None:
        raise UnsupportedError(
            f"the target {text!r:.80} is nothing that Dynamo writes for NumPy code, "
            "so it is not resolved from a store"
        )
    return numpy_code.numpy_wrapper(kind, wrapped)


def parts(text: str) -> tuple[str, str]:
    """Return the kind of call and the name of the callee that a text stands for."""
    kind, _, name = text.removeprefix(TAG).partition(":")
    return kind, name


@cache
def array_functions() -> Mapping[str, Callable[..., object]]:
    """Return the functions and scalar types of `torch._numpy` that compute, by qualified name."""
    return {
        name: function
        for name, function in numpy_code.numpy_functions().items()
        if name.rpartition(".")[2] not in _DENIED_FUNCTIONS
        and (isinstance(function, type) or function.__module__ not in _OF_DTYPES)
    }


@cache
def _names() -> Mapping[int, str]:
    found: dict[int, str] = {}
    for name, function in array_functions().items():
        found.setdefault(id(function), name)
    return found


@cache
def methods() -> frozenset[str]:
    """Return the methods of arrays that compute: those with a name of their own, and operators."""
    return frozenset(
        name for name in numpy_code.array_methods() if not name.startswith("_") or name in _DUNDERS
    )


def _name_of_operator(function: object) -> str:
    module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    return f"{module}.{name}" if _operator(f"{module}.{name}") is function else ""


def _operator(name: str) -> Callable[..., object] | None:
    """Return a function of Python's own that is called on arrays; reading an attribute is none."""
    if not functions.is_python(name) or name == "builtins.getattr":
        return None
    found = functions.resolve(name)
    return found if callable(found) else None  # `math.pi` is a number


def check(
    target: str,
    trees: Sequence[Json],
    keywords: Mapping[str, Json],
    args: Sequence[ValueKind],
    named: Sequence[ValueKind] = (),
) -> ValueKind:
    """Return the kind of what a call gives back, whose arguments are data, `named` those with a
    keyword.

    Raises `ForbiddenError` where it may not be made with these arguments.
    """
    kind, name = parts(target)
    if kind == ATTRIBUTE:
        return _check_attribute(trees, keywords, args)
    if kind == OPERATOR:
        return _check_operator(name, trees, keywords, args)
    if kind == METHOD:
        _check_array(f"the method {name!r}", args)
    for text in strings.texts_of([*trees, *keywords.values()]):
        strings.check_option(text)
    # It may hand on what it was given, but for an option: with the text of a dtype it computes.
    return _result(kind for kind in [*args, *named] if kind.types != {"str"})


def _result(handed: Iterable[ValueKind]) -> ValueKind:
    """Return the kind of a call's result: arrays, numbers, an argument, or a part of one."""
    return value_kinds.union(
        [value_kinds.RESULT, *(kind | value_kinds.item(kind) for kind in handed)]
    )


def _check_attribute(
    trees: Sequence[Json], keywords: Mapping[str, Json], args: Sequence[ValueKind]
) -> ValueKind:
    _check_array("an attribute", args)
    if keywords or len(trees) != 2 or str(trees[1]) not in ATTRIBUTES:
        raise ForbiddenError("of an array one of its attributes is read, by a name")
    return value_kinds.RESULT


def _check_operator(
    name: str, trees: Sequence[Json], keywords: Mapping[str, Json], args: Sequence[ValueKind]
) -> ValueKind:
    if keywords:
        raise ForbiddenError(f"{name!r} takes no keywords in a graph")
    for text in strings.texts_of(trees):
        raise ForbiddenError(f"{name!r} takes no text, found {text!r:.80}")
    if any(kind.types == {"str"} for kind in args):
        raise ForbiddenError(f"{name!r} is called on a text")
    try:
        inspect.signature(functions.resolve(name) or print).bind(*trees)
    except TypeError as error:
        raise ForbiddenError(f"{name!r} is given {len(trees)} arguments") from error
    except ValueError:  # no signature is known: `max(a, b, ...)`
        pass
    return _result(args)


def _check_array(what: str, args: Sequence[ValueKind]) -> None:
    """Refuse what is no tensor: then nothing is known of a member of that name."""
    if not args or "tensor" not in args[0].types or "str" in args[0].types:
        raise ForbiddenError(f"{what} of an array is used on {args[0] if args else 'nothing'}")
