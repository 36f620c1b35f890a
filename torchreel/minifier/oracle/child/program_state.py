"""The state that a program leaves behind, compared between eager mode and Dynamo.

Lives here: the watch on the one call of a program, what can be looked at afterwards, and the first
difference of two runs.  Not here: the runs (`program_runner`), when two tensors differ
(`replay.accuracy.comparison`).

A run is looked at from the result, the arguments and the program's own globals on, through
containers, attributes, and what classes and functions of the program hold.  What lies on the way is
named by an expression (`result[0]`, `model.count`), so that a reduction can ask for that very thing
in another program.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from torchreel.minifier.cases.source_case import ARGUMENTS, KEYWORDS, RESULT
from torchreel.replay.accuracy.comparison import differences, observable_strides
from torchreel.store.failures.signature import Signature, wrong_result_signature

CALLED = "__torchreel_called__"
"""The name of the function around a program's last call, in its globals."""

_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, range)
_SHOWN = 120
_DEEPEST = 40
_MOST_UNSTEADY = 100
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxother, _SHORT.maxstring = 3, _SHOWN, _SHOWN


@dataclass(frozen=True)
class Departure:
    """A place where two runs differ, and how they do."""

    place: str
    """The expression."""
    kind: str
    detail: str = ""

    def signature(self) -> Signature:
        """Return the signature of a wrong result of Dynamo's."""
        return wrong_result_signature(self.kind, stage="dynamo")

    def __str__(self) -> str:
        return f"{self.place}: {self.detail}"


@dataclass
class ProgramRun:
    """One run of a program: its globals, with the arguments and result of its last call."""

    names: dict[str, Any] = field(default_factory=dict)

    def called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, watched."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.names |= {ARGUMENTS: args, KEYWORDS: kwargs}
            self.names[RESULT] = result = function(*args, **kwargs)
            return result

        return call

    def at(self, place: str) -> object:
        """Evaluate an expression; raises what it raises."""
        return eval(place, self.names)

    def places(self) -> Iterator[str]:
        """Yield the places to begin at: result, arguments, and the program's globals."""
        yield from (name for name in (RESULT, ARGUMENTS, KEYWORDS) if name in self.names)
        own = (RESULT, ARGUMENTS, KEYWORDS, CALLED)
        yield from (
            name for name in list(self.names) if name not in own and not name.startswith("__")
        )


def departure(
    eager: ProgramRun, compiled: ProgramRun, place: str = "", but: Collection[str] = ()
) -> Departure | None:
    """Return the first difference of two runs at `place`; without it, at any place not in `but`."""
    walk = _Walk(but)
    for name in [place] if place else eager.places():
        one = eager.at(name)
        try:
            other = compiled.at(name)
        except (NameError, AttributeError, LookupError):
            return Departure(name, "missing", f"{_short(one)} in eager mode, and nothing compiled")
        found = walk.compare(name, one, other)
        if found is not None:
            return found
    return None


def unsteady(eager: ProgramRun, again: ProgramRun) -> set[str]:
    """Return the places where eager mode gives something else each time.

    Addresses, counts, noise.
    """
    places: set[str] = set()
    while len(places) < _MOST_UNSTEADY:
        found = departure(eager, again, but=places)
        if found is None:
            break
        places.add(found.place)
    return places


@dataclass(frozen=True)
class _Met:
    """Two objects that were compared, kept: an id is an object's as long as that lives."""

    place: str
    eager: object
    compiled: object


class _Walk:
    """Compares two object graphs in step; each object is looked at once."""

    def __init__(self, but: Collection[str] = ()) -> None:
        self._but = but
        self._pairs: set[tuple[int, int]] = set()
        self._met: dict[int, _Met] = {}
        self._met_compiled: dict[int, _Met] = {}

    def compare(self, place: str, one: Any, other: Any, depth: int = 0) -> Departure | None:
        """Return the first difference that counts; `one` is eager's."""
        found = self._compare(place, one, other, depth)
        return found if found is not None and found.place not in self._but else None

    def _compare(self, place: str, one: Any, other: Any, depth: int) -> Departure | None:
        if _is_of_numpy(one) and _is_of_numpy(other):
            # Dynamo has arrays without a dimension for NumPy's numbers.
            return self.compare(f"{place}.tolist()", one.tolist(), other.tolist(), depth + 1)
        if _is_iterator(one) and _is_iterator(other):
            return None  # Dynamo gives back a generator as what it has yielded
        if _name(type(one)) != _name(type(other)):
            return Departure(f"type({place}).__qualname__", "values", _message_of(one, other))
        if one is None or isinstance(one, _PLAIN):
            same = one == other or (one != one and other != other)
            return None if same else Departure(place, "values", _message_of(one, other))
        if (id(one), id(other)) in self._pairs:
            return None
        self._pairs.add((id(one), id(other)))
        found = self._identity(place, one, other)
        self._met[id(one)] = self._met_compiled[id(other)] = _Met(place, one, other)
        if found is not None:
            return found
        if isinstance(one, torch.Tensor):
            # Where eager's values vary, the rest of the tensor is compared all the same.
            found_here = _of_tensors(place, one, other)
            return next((item for item in found_here if item.place not in self._but), None)
        if isinstance(one, (list, tuple, dict, set, frozenset)) and len(one) != len(other):
            return Departure(place, "count", _message_of(one, other))
        if depth > _DEEPEST:
            return None
        for inner, left, right in _inside(place, one, other):
            found = self.compare(inner, left, right, depth + 1)
            if found is not None:
                return found
        return None

    def _identity(self, place: str, one: object, other: object) -> Departure | None:
        """Return a difference if two places hold one object in one run, and two in the other.

        Immutable objects don't count: Python may or may not make new ones.
        """
        before, too = self._met.get(id(one)), self._met_compiled.get(id(other))
        known = before or too
        if known is None or isinstance(one, (tuple, frozenset)):
            return None
        message = "one object in eager mode, two compiled" if before else "the reverse"
        found = Departure(f"{known.place} is {place}", "values", message)
        return found if found.place not in self._but else None


def _is_of_numpy(value: object) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "tolist")


def _is_iterator(value: object) -> bool:
    return isinstance(value, Iterator) and type(value).__module__ == "builtins"


def _of_tensors(place: str, one: torch.Tensor, other: torch.Tensor) -> Iterator[Departure]:
    """Yield the differences of two tensors: values, then other properties, then gradients."""
    if torch.nn.parameter.is_lazy(one) or torch.nn.parameter.is_lazy(other):
        return  # they have no values yet
    found = differences([one.detach()], [other.detach()])
    if found:
        message = f"{found[0].detail}; {_message_of(one, other)}"
        yield Departure(place, found[0].kind, message)
    for name, left, right in _properties(one, other):
        if left != right:
            yield Departure(f"{place}.{name}", "values", _message_of(left, right))
    if not one.is_leaf or not other.is_leaf or one.grad is other.grad is None:
        return
    if one.grad is None or other.grad is None:
        yield Departure(f"{place}.grad is None", "values", "only one of the two has one")
    else:
        yield from _of_tensors(f"{place}.grad", one.grad, other.grad)


def _properties(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[str, object, object]]:
    for name in ("shape", "dtype", "device", "layout", "requires_grad"):
        yield name, getattr(one, name), getattr(other, name)
    if one.shape == other.shape and observable_strides(one) != observable_strides(other):
        yield "stride()", one.stride(), other.stride()


def _inside(place: str, one: Any, other: Any) -> Iterator[tuple[str, object, object]]:
    """Yield the contents of two objects of one type, in pairs with places; none if unknown."""
    if isinstance(one, (list, tuple)):
        pairs = zip(list(one), list(other), strict=True)
        yield from ((f"{place}[{number}]", *pair) for number, pair in enumerate(pairs))
    elif isinstance(one, dict):
        yield f"list({place})", list(one), list(other)
        yield from _entries(place, one, other, attributes=False)
    elif isinstance(one, (set, frozenset)):
        yield f"sorted(map(repr, {place}))", sorted(map(repr, one)), sorted(map(repr, other))
    elif isinstance(one, FunctionType):
        cells = zip(one.__closure__ or (), other.__closure__ or (), strict=False)
        for number, pair in enumerate(cells):
            yield from _contents(f"{place}.__closure__[{number}]", *pair)
        yield from _attributes(place, vars(one), vars(other))
    elif isinstance(one, MethodType):
        yield f"{place}.__self__", one.__self__, other.__self__
    elif isinstance(one, type):
        if one.__module__ == "__main__":
            yield from _attributes(place, vars(one), vars(other))
    elif not isinstance(one, ModuleType):
        yield from _attributes(place, _state(one), _state(other))


def _contents(place: str, *cells: CellType) -> Iterator[tuple[str, object, object]]:
    try:
        yield f"{place}.cell_contents", cells[0].cell_contents, cells[1].cell_contents
    except ValueError:  # an empty one
        return


def _state(obj: object) -> Mapping[str, object]:
    """Return the attributes of an object of the program's, or of a module: of others nothing is
    known.
    """
    kinds = type(obj).__mro__
    if not isinstance(obj, torch.nn.Module) and all(k.__module__ != "__main__" for k in kinds):
        return {}
    slots = [name for kind in kinds for name in _slots(kind) if hasattr(obj, name)]
    return {**getattr(obj, "__dict__", {}), **{name: getattr(obj, name) for name in slots}}


def _slots(kind: type) -> Sequence[str]:
    found = vars(kind).get("__slots__", ())
    return [found] if isinstance(found, str) else list(found)


def _attributes(
    place: str, one: Mapping[str, object], other: Mapping[str, object]
) -> Iterator[tuple[str, object, object]]:
    left, right = ({k: v for k, v in side.items() if k[:2] != "__"} for side in (one, other))
    missing = left.keys() ^ right.keys()
    if missing:
        yield f"sorted(vars({place}))", sorted(left), sorted(right)
    yield from _entries(place, left, right, attributes=True)


def _entries(
    place: str, one: Mapping[Any, object], other: Mapping[Any, object], *, attributes: bool
) -> Iterator[tuple[str, object, object]]:
    for number, (key, value) in enumerate(one.items()):
        if key not in other:
            continue
        if attributes:
            inner = f"{place}.{key}" if str(key).isidentifier() else f"vars({place})[{key!r}]"
        else:
            # The order is compared before; not every key is spelled as an expression.
            spelled = type(key) in (str, int, float, bool, type(None))
            inner = f"{place}[{key!r}]" if spelled else f"list({place}.values())[{number}]"
        yield inner, value, other[key]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _message_of(one: object, other: object) -> str:
    return f"{_short(one)} in eager mode, {_short(other)} compiled"


def _short(value: object) -> str:
    if isinstance(value, torch.Tensor) and value.numel() > 8:
        return f"a tensor of {tuple(value.shape)}"
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
