"""Members of modules and classes that something else has put there: the program, or a library.

A bundle names modules and classes, and a replay imports them: they are as their source says.  But
programs change what they import (`torch.manual_seed = ...`, `modeling_llama.LlamaMLP = ...`), and
then Dynamo traces something else.

Lives here: finding such members, among those that the code of a frame can come to by its names.
Not here: keeping them (`bundles`), putting them back (`torchreel.replay.child.frames`).  Nothing
here asks an object of the program's for an attribute: that may be its code.
"""

from __future__ import annotations

import dis
import marshal
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

from torchreel.recorder.environment import ENVIRONMENT
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.frames.places import KNOWN_ANYWHERE

_NO_PATCHES = frozenset({"builtins", "torchreel", *sys.stdlib_module_names})
"""Top-level modules whose functions are tools, or at home everywhere."""
_MOST_STEPS = 6
"""Calls from function to function that are followed: each may name other modules."""
_ENVIRONMENT = (ENVIRONMENT[0], ".".join(ENVIRONMENT[1:]))
_HEADER = 16
"""Bytes of a file of compiled code before the code."""


class Patch(NamedTuple):
    """A member that is not what the source of its module or class says."""

    owner: ModuleType | type
    name: str
    value: object
    ruled: bool = False
    """True if Dynamo takes it for the function of torch in whose place it stands."""


def patches(
    owners: Iterable[ModuleType | type | FunctionType], names: Iterable[str]
) -> list[Patch]:
    """Return the members that seem to be from elsewhere, of what code with these `names` reaches.

    It starts at `owners`.  A replay compares each with what it has itself: one too many is no harm.
    """
    found: list[Patch] = []
    known, fresh = dict[int, Any](), {id(owner): owner for owner in owners}
    said, heard = set[str](), set(names)
    for _ in range(_MOST_STEPS):
        said |= heard
        reached, mentioned = dict[int, Any](), set[str]()
        for owner, wanted in [
            *((owner, heard) for owner in known.values()),
            *((owner, said) for owner in fresh.values()),
        ]:
            with fail_open("members of a module", quiet=True):
                for name, value in _wanted(owner, wanted, is_new=id(owner) in fresh):
                    if name and _is_foreign(owner, name, value):
                        found.append(Patch(owner, name, value))
                    _follow(value, reached, mentioned)
        known |= fresh
        fresh = {key: owner for key, owner in reached.items() if key not in known}
        heard = mentioned - said
        if not fresh and not heard:
            break
    return found


def _wanted(owner: Any, names: set[str], *, is_new: bool) -> list[tuple[str, object]]:
    """Return the members of an owner that have these names; of a class the special ones too."""
    if type(owner) is FunctionType:
        return [("", owner)]
    members = members_of(owner)
    if type(owner) is ModuleType:  # what begins so is Dynamo's, as `__compiled_fn_1`
        return [(n, members[n]) for n in names & members.keys() if not n.startswith("__")]
    special = {n for n in members if n.startswith("__")} if is_new else set[str]()
    return [(name, members[name]) for name in (names & members.keys()) | special]


def _follow(value: object, reached: dict[int, Any], mentioned: set[str]) -> None:
    """Add the names that a function mentions, and its module; or the module or class of a member.

    A library that changes torch sets members of the modules of torch's own functions, which no
    module of the program need hold.
    """
    target = value if type(value) is ModuleType else _function(value)
    if type(target) is FunctionType:
        mentioned.update(_mentioned(target.__code__))
        target = _module_of(target)
    if target is not None and home_of(target).partition(".")[0] not in _NO_PATCHES:
        bases = () if type(target) is ModuleType else type.__getattribute__(target, "__mro__")
        reached.update({id(one): one for one in (target, *bases)})


def _module_of(function: FunctionType) -> ModuleType | None:
    """Return the module in which a function was made, whatever its `__module__` says; or None."""
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    return module if members_of(module) is function.__globals__ else None


def _mentioned(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _mentioned(constant)


def _is_foreign(owner: Any, name: str, value: object) -> bool:
    home, function = home_of(owner), _function(value)
    origin = "" if function is None else home_of(function)
    if not origin or _top(origin) == _top(home) or origin.partition(".")[0] in _NO_PATCHES:
        return False
    if issubclass(type(owner), type) and qualname_of(function) == f"{qualname_of(owner)}.{name}":
        return False  # libraries give their classes the names of modules that others see
    if type(owner) is ModuleType and name in (imported := _imported(home)):
        source, attribute = imported[name]
        handed_on = members_of(sys.modules.get(source)).get(attribute) is value
        if handed_on or _top(source) == _top(origin):
            return False
    return _is_by_name(function, origin) or _is_of_program(origin)


def _top(name: str) -> str:
    """Return the package of a module; `_pytest` is that of `pytest`."""
    return name.partition(".")[0].lstrip("_")


class Member(NamedTuple):
    """Holds what a module, a class, or an object that one of them holds, has under a name."""

    module: str
    path: str
    """From the module to the owner: names of members with dots between them; '' for itself."""
    name: str
    value: object

    @property
    def is_setting(self) -> bool:
        """True for a constant in what a program imports; torch's own are kept in other ways."""
        return type(self.value) in CONSTANTS and self.is_of_program

    @property
    def is_of_program(self) -> bool:
        """True for a member of what a program imports, other than torch and Python."""
        return self.module.partition(".")[0] not in KNOWN_ANYWHERE

    def depth(self) -> int:
        """Return how many owners there are between the module and the member."""
        return len(self.path.split(".")) if self.path else 0


CONSTANTS = (bool, int, float, str, type(None))


def is_variable(member: Member) -> bool:
    """Return True for a variable of the environment."""
    return member[:2] == _ENVIRONMENT


def member_at(scope: Mapping[str, object], names: Sequence[str]) -> Member | None:
    """Return the member that a path of names leads to, from the globals of a frame on.

    Libraries hold settings so (`gpytorch.settings.debug._state`), and stacks and registries, which
    a program changes while it runs. None where a replay would not find the owner by its names.
    """
    if tuple(names[:-1]) == ENVIRONMENT:
        return Member(*_ENVIRONMENT, names[-1], os.environ.get(names[-1]))
    first, *more = names
    value, home = scope.get(first), str(scope.get("__name__"))
    owner: object = sys.modules.get(home)
    place = (home, "") if members_of(owner) is scope else ("", "")
    here = _place_of(value) or (home, first)
    for name in more:
        holders = _holders(value, here)
        held = next((each for each in holders if name in state_of(each[0])), None)
        if held is None:
            return None
        owner, place = held
        value = state_of(owner)[name]
        here = _place_of(value) or (place[0], f"{place[1]}.{name}".lstrip("."))
    if place[0] == "__main__" or _at(*place) is not owner:
        return None
    return Member(*place, names[-1], value)


_Place = tuple[str, str]


def _holders(value: Any, here: _Place) -> Iterator[tuple[object, _Place]]:
    """Yield what may hold an attribute of an object: itself, and its class, or the bases of it."""
    yield value, here
    if type(value) is ModuleType:
        return
    is_class = issubclass(type(value), type)
    bases = type.__getattribute__(value if is_class else type(value), "__mro__")
    for base in bases[is_class:]:
        yield base, (home_of(base), qualname_of(base))


def _place_of(value: object) -> _Place | None:
    """Return the name of a module, or that of the module of a class and its own; else None."""
    is_named = type(value) is ModuleType or issubclass(type(value), type)
    return (home_of(value), qualname_of(value)) if is_named else None


def _at(module: str, path: str) -> object:
    """Return what is at a place; None if there is nothing."""
    found: object = sys.modules.get(module)
    for name in filter(None, path.split(".")):
        found = state_of(found).get(name)
    return found


def state_of(owner: object) -> Mapping[str, object]:
    """Return the members of a module or class, or what an object holds under names; else {}.

    Of a `threading.local`, what this thread has in it.
    """
    if type(owner) is ModuleType or issubclass(type(owner), type):
        return members_of(owner)
    if type(owner) is threading.local:
        return vars(owner)
    try:
        found = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        found = {}
    held: dict[str, object] = found if type(found) is dict else {}
    slots = _slots(owner)
    return {**held, **slots} if slots else held


def _slots(owner: object) -> dict[str, object]:
    """Return what an object has in the slots of its classes that are written in Python."""
    found: dict[str, object] = {}
    for base in type.__getattribute__(type(owner), "__mro__"):
        if base.__flags__ & _HEAP_TYPE:
            for name, slot in type.__getattribute__(base, "__dict__").items():
                if type(slot) is MemberDescriptorType:
                    with suppress(AttributeError):  # an empty one
                        found[name] = slot.__get__(owner)
    return found


_HEAP_TYPE = 1 << 9
"""Of a class's flags: made at run time, not a static one of C (`Py_TPFLAGS_HEAPTYPE`)."""


def members_of(owner: object) -> Mapping[str, object]:
    """Return the members of a module or class, past what a metaclass says of them; else {}."""
    if type(owner) is ModuleType:
        return vars(owner)
    return type.__getattribute__(owner, "__dict__") if issubclass(type(owner), type) else {}


def home_of(obj: Any) -> str:
    """Return the name of a module, or that of the module of a class or function."""
    if type(obj) is ModuleType:
        found = vars(obj).get("__name__")
    elif issubclass(type(obj), type):
        found = type.__getattribute__(obj, "__module__")
    else:
        found = obj.__module__
    return found if type(found) is str else ""


def qualname_of(obj: Any) -> str:
    """Return the qualified name of a class or function; '' for a module."""
    if type(obj) is ModuleType:
        return ""
    is_class = issubclass(type(obj), type)
    return str(type.__getattribute__(obj, "__qualname__") if is_class else obj.__qualname__)


def _function(value: object) -> Any:
    """Return the function or class that a member is, or is made of; None for any other object."""
    if type(value) is staticmethod or type(value) is classmethod:
        value = value.__func__
    elif type(value) is property:
        value = value.fget
    return value if type(value) is FunctionType or issubclass(type(value), type) else None


def _is_by_name(function: Any, module: str) -> bool:
    """Return True if a function or class is found under its own name."""
    return _at(module, qualname_of(function)) is function


def _is_of_program(module: str) -> bool:
    """Return True for code that is not installed.

    What a library makes elsewhere without a name is nearly always the work of its decorators, which
    an import does again.
    """
    if module == "__main__":
        return True
    file = members_of(sys.modules.get(module)).get("__file__")
    return isinstance(file, str) and not {"site-packages", "dist-packages"} & {*Path(file).parts}


@cache
def _imported(name: str) -> dict[str, tuple[str, str]]:
    """Return the names that a module's own code imports: from which module, and what.

    The code is what Python keeps beside the source: a loader may be the program's.
    """
    cached = members_of(sys.modules.get(name)).get("__cached__")
    if type(cached) is not str or not Path(cached).is_file():
        return {}
    data = Path(cached).read_bytes()
    code = marshal.loads(data[_HEADER:]) if data.startswith(MAGIC_NUMBER) else None
    return dict(_imports(code, name.partition(".")[0])) if isinstance(code, CodeType) else {}


def _imports(code: CodeType, top: str) -> Iterator[tuple[str, tuple[str, str]]]:
    source = attribute = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            source = str(step.argval) or top
        elif step.opname == "IMPORT_FROM":
            attribute = str(step.argval)
        elif attribute and step.opname in ("STORE_NAME", "STORE_GLOBAL"):
            yield str(step.argval), (source, attribute)
            attribute = ""
