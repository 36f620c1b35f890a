"""Objects as expressions, and what has to be defined and assigned for that.

Lives here: the walk over what a frame refers to. A function is defined once, a class with those of
its methods that ran, an object is made empty and then given its attributes. Not here: the text of
functions (`functions`), modules of torch (`layers`), the program's form (`program`).
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import enum
import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from torchreel.minifier.source.assemble import layers
from torchreel.minifier.source.assemble.functions import (
    Renamed,
    Sources,
    all_names,
    global_names,
    uses_nonlocal,
)
from torchreel.minifier.source.assemble.names import Names
from torchreel.minifier.source.assemble.tensors import Tensors
from torchreel.recorder.frames.patches import Patch
from torchreel.torch_compat.autograd import functions
from torchreel.torch_compat.dynamo import rules
from torchreel.torch_compat.operators import dispatcher

_SINGLE = (torch.dtype, torch.layout, torch.memory_format)
_SHARED = (list, dict, set, collections.deque)
"""The types of values that several objects may share, and one may change."""
_NEW = object().__reduce_ex__(2)[0]  # makes an object without attributes: says nothing of it
_MISSING = object()
# Deeper nested data than this is no data.
_DEEPEST = 40


@dataclass
class Choice:
    """A degree of fidelity of the program; the first choice gives the shortest program."""

    executed: frozenset[tuple[str, int, str]] | None = None
    """The code that ran in eager mode, by file, line and name; None: everything counts."""
    closures: bool = False
    """True if closures stay closures; else what they hold becomes global."""


@dataclass
class Definition:
    """A function or a class of the program."""

    name: str
    text: str
    bases: list[str] = field(default_factory=list)


class Objects:
    """Writes objects as expressions, and keeps the definitions and statements for them."""

    def __init__(self, sources: Sources, names: Names, choice: Choice) -> None:
        self._sources, self.names, self._choice = sources, names, choice
        self.tensors = Tensors()
        self.definitions: list[Definition] = []
        self.statements: list[str] = []
        self._known: dict[int, str] = {}
        self._held: list[object] = []
        self._globals: dict[str, object] = {}
        self._depth = 0
        self._mentioned: set[str] | None = None

    def mention(self, codes: list[CodeType]) -> None:
        """Note the attributes that code mentions: others are left out."""
        self._mentioned = {name for code in codes for name in all_names(code)}

    def put(self, patches: Iterable[Patch]) -> None:
        """Add a statement for each member of a module or class that is imported, and was changed.

        Those of what is written as source are in that source.
        """
        for owner, name, value, _ in patches:
            place = self.names.expression(owner)
            if place is not None and (self._mentioned is None or name in self._mentioned):
                self.statements.append(f"{place}.{name} = {self.expression(value, name)}")

    # -- expressions --------------------------------------------------------------------------

    def expression(self, obj: Any, hint: str = "value") -> str:
        """Return an expression for an object."""
        if id(obj) in self._known:
            return self._known[id(obj)]
        self._depth += 1
        try:
            return self._written(obj, hint) if self._depth < _DEEPEST else "None"
        finally:
            self._depth -= 1

    def _written(self, obj: Any, hint: str) -> str:
        if isinstance(obj, float) and not math.isfinite(obj) and type(obj) is float:
            return f'float("{obj}")'
        if obj is None or obj is Ellipsis or type(obj) in (bool, int, float, complex, str, bytes):
            return repr(obj)
        if isinstance(obj, torch.Tensor):
            return self.tensors.mark(obj)
        if isinstance(obj, _SINGLE):
            return str(obj)
        if isinstance(obj, torch.device):
            return f"torch.device({str(obj)!r})"
        found = self._collection(obj, hint)
        if found is not None:
            return found
        return self._other(obj, hint)

    def _collection(self, obj: Any, hint: str) -> str | None:
        """Return the builtin collections, `Size` and namedtuples."""
        kind = type(obj)
        if kind in (list, tuple, set, frozenset, torch.Size):
            items = [self.expression(item, hint) for item in obj]
            inner = ", ".join(items)
            if kind is list:
                return f"[{inner}]"
            if kind is tuple:
                return f"({inner}{',' if len(items) == 1 else ''})"
            if kind is set:
                return f"{{{inner}}}" if items else "set()"
            name = "frozenset" if kind is frozenset else "torch.Size"
            return f"{name}([{inner}])"
        if kind is dict:
            pairs = (f"{self.expression(k)}: {self.expression(v, str(k))}" for k, v in obj.items())
            return f"{{{', '.join(pairs)}}}"
        if kind in (collections.OrderedDict, collections.defaultdict, collections.deque):
            self.names.lines.setdefault("collections", "import collections")
            plain = self.expression(list(obj) if kind is collections.deque else dict(obj), hint)
            if kind is collections.deque:
                return f"collections.deque({plain}, maxlen={obj.maxlen})"
            made = kind is collections.defaultdict
            first = f"{self.expression(obj.default_factory)}, " if made else ""
            return f"collections.{kind.__name__}({first}{plain})"
        if kind is slice:
            return f"slice({obj.start!r}, {obj.stop!r}, {obj.step!r})"
        if kind is range:
            return repr(obj)
        return None

    def _other(self, obj: Any, hint: str) -> str:
        operator = dispatcher.operator_path(obj)
        if operator is not None:
            return f"torch.ops.{operator}"
        if isinstance(obj, MethodType):
            return f"{self.expression(obj.__self__, 'owner')}.{obj.__func__.__name__}"
        if isinstance(obj, functools.partial):
            self.names.lines.setdefault("functools", "import functools")
            parts = [self.expression(obj.func), *map(self.expression, obj.args)]
            parts += [f"{k}={self.expression(v, k)}" for k, v in obj.keywords.items()]
            return f"functools.partial({', '.join(parts)})"
        if isinstance(obj, (type, FunctionType, BuiltinFunctionType, ModuleType)) or callable(obj):
            found = self.names.expression(obj)
            if found is not None:
                return found
        if isinstance(obj, FunctionType):
            region = rules.nested_compile_region(obj)
            if region is not None:
                return f"torch.compiler.nested_compile_region({self.expression(region)})"
            wrapped = self._decorated(obj)
            if wrapped is not None:
                decorator, inner = wrapped
                return self._keep(obj, self.assigned(hint, f"{decorator}({self.function(inner)})"))
            return self.function(obj, hint)
        if isinstance(obj, enum.Enum):
            return f"{self.class_(type(obj))}.{obj.name}"
        if isinstance(obj, type):
            return self.class_(obj)
        return self._instance(obj, hint)

    # -- functions ----------------------------------------------------------------------------

    def function(self, function: FunctionType, hint: str = "") -> str:
        """Return the name of a function of the program's; its definition is added."""
        if id(function) in self._known:
            return self._known[id(function)]
        tree = self._sources.function(function)
        if tree is None:
            return "None"
        name = self.names.fresh(hint if tree.name == "function" and hint else tree.name)
        self._keep(function, name)
        cells = self._cells(function)
        if cells and (self._choice.closures or uses_nonlocal(tree)):
            self._closure(function, tree, name, cells)
            return name
        tree.name = name
        text = self._text(function, tree, cells)
        self.definitions.append(Definition(name, text))
        return name

    def _decorated(self, function: FunctionType) -> tuple[str, FunctionType] | None:
        """Return the expression of a decorator of torch's, and what it decorates."""
        found = functions.decorated(function)
        if found is None or self.names.expression(found[0]) is None:
            return None
        kind, given, inner = found
        return f"{self.names.expression(kind)}({', '.join(map(repr, given))})", inner

    def _closure(
        self, function: FunctionType, tree: ast.FunctionDef, name: str, cells: Mapping[str, Any]
    ) -> None:
        """Write a function that makes the closure, and the call of it."""
        self._enclosed(name, self._text(function, tree, {}).splitlines(), tree.name, cells)

    def _cell(self, name: str, value: Any) -> str:
        """Return the value of a cell.

        What may change has a name, since others may hold it as well.
        """
        shared = isinstance(value, _SHARED)
        return self._global(name, value) if shared else self.expression(value, name)

    def _enclosed(self, name: str, lines: list[str], inner: str, cells: Mapping[str, Any]) -> None:
        maker = self.names.fresh(f"make_{name}")
        head = f"def {maker}({', '.join(cells)}):"
        text = "\n    ".join([head, *lines, f"return {inner}"])
        self.definitions.append(Definition(maker, text))
        given = ", ".join(self._cell(key, value) for key, value in cells.items())
        self.statements.append(f"{name} = {maker}({given})")

    def _cells(self, function: FunctionType) -> dict[str, Any]:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        found = {name: _content(cell) for name, cell in cells if name != "__class__"}
        if _is_generated(function):
            return {}
        return {name: value for name, value in found.items() if value is not _MISSING}

    def _text(self, function: FunctionType, tree: ast.FunctionDef, cells: Mapping[str, Any]) -> str:
        """Return the definition with the names that things have here, and with its defaults."""
        names: dict[str, str] = {}
        scope = {**function.__globals__}
        for name in dict.fromkeys(global_names(function.__code__)):
            if name in scope and not isinstance(scope[name], ModuleType):
                names[name] = self._global(name, scope[name])
            elif name in scope and self.names.is_allowed(scope[name].__name__):
                names[name] = self.names.bound(name, scope[name]) or name
        names |= {name: self._global(name, value) for name, value in cells.items()}
        renamed = Renamed(names, self._of_modules(tree, scope)).visit(tree)
        self._defaults(function, renamed)
        return ast.unparse(ast.fix_missing_locations(renamed))

    def _of_modules(self, tree: ast.AST, scope: Mapping[str, Any]) -> dict[tuple[str, str], str]:
        """Return the global name for each `module.name` of one of the program's modules."""
        found = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = scope.get(node.value.id)
                own = isinstance(module, ModuleType) and not self.names.is_allowed(module.__name__)
                if own and hasattr(module, node.attr):
                    value = getattr(module, node.attr)
                    found[node.value.id, node.attr] = self._global(node.attr, value)
        return found

    def _global(self, name: str, value: Any) -> str:
        """Return the name of a global of the program's; it is assigned once."""
        if isinstance(value, (type, FunctionType, BuiltinFunctionType, ModuleType)):
            found = self.names.bound(name, value)
            if found is not None:
                return found
        if self._globals.get(name, _MISSING) is value:
            return name
        text = self.expression(value, name)
        is_name = text.isidentifier() and text not in ("None", "True", "False")
        if is_name and not isinstance(value, torch.Tensor):  # what marks a tensor is no name yet
            return text
        fresh = self.names.fresh(name)
        self._globals[fresh] = value
        if isinstance(value, _SHARED):
            self._keep(value, fresh)  # who else has it has to have this one
        self.statements.append(f"{fresh} = {text}")
        return fresh

    def _defaults(self, function: FunctionType, tree: ast.FunctionDef) -> None:
        found = [self.expression(value) for value in function.__defaults__ or ()]
        tree.args.defaults = [_parsed(text) for text in found]
        given = function.__kwdefaults__ or {}
        tree.args.kw_defaults = [
            _parsed(self.expression(given[arg.arg])) if arg.arg in given else None
            for arg in tree.args.kwonlyargs
        ]

    # -- classes and their instances ------------------------------------------------------------

    def class_(self, kind: type) -> str:
        """Return the name of a class of the program's; its definition is added."""
        if id(kind) in self._known:
            return self._known[id(kind)]
        known = self.names.expression(kind)
        if known is not None:
            return known
        name = self._keep(kind, self.names.fresh(kind.__name__))
        fields = getattr(kind, "_fields", None)
        if tuple in kind.__bases__ and isinstance(fields, tuple):
            self.names.lines.setdefault("collections", "import collections")
            made = f"collections.namedtuple({kind.__name__!r}, {list(fields)!r})"
            self.statements.append(f"{name} = {made}")
            return name
        bases = [self.class_(base) for base in kind.__bases__ if base is not object]
        own_fields = vars(kind).get("__dataclass_fields__", {}).keys() & _annotated(kind)
        lines = self._fields(kind) if own_fields else []
        for key, value in list(vars(kind).items()):
            lines += self._member(kind, key, value) if key not in own_fields else []
        head = f"class {name}({', '.join(bases)}):" if bases else f"class {name}:"
        text = [head, *(f"    {line}" for line in lines or ["pass"])]
        if own_fields:
            self.names.lines.setdefault("dataclasses", "import dataclasses")
            text.insert(0, "@dataclasses.dataclass")
        cells = self._cells_of_methods(kind) if self._choice.closures else {}
        if cells:
            self._enclosed(name, text, name, cells)
        else:
            self.definitions.append(Definition(name, "\n".join(text), bases))
        return name

    def _cells_of_methods(self, kind: type) -> dict[str, Any]:
        """Return the cells of a class's methods, by name, without the one of the class itself."""
        found = [value for value in vars(kind).values() if isinstance(value, FunctionType)]
        wrapped = [self._decorated(method) for method in found]
        methods = [inner[1] if inner else one for one, inner in zip(found, wrapped, strict=True)]
        cells = [self._cells(method) for method in methods if self._ran(method)]
        return {
            name: value for found in cells for name, value in found.items() if value is not kind
        }

    def _fields(self, kind: Any) -> list[str]:
        """Return the fields of a dataclass, which its methods are made from.

        It is never frozen: its objects are made without `__init__`.
        """
        lines = []
        for one in dataclasses.fields(kind):
            default = ""
            if one.default is not dataclasses.MISSING:
                text = self.expression(one.default, one.name)
                default = f" = {text if _is_literal(text) else None}"
            elif one.default_factory is not dataclasses.MISSING:
                made = self.expression(one.default_factory)
                default = f" = dataclasses.field(default_factory={made})"
            if one.name in _annotated(kind):
                lines.append(f"{one.name}: object{default}")
        return lines

    def _member(self, kind: type, key: str, value: Any) -> list[str]:
        """Return the lines of one thing in a class."""
        for wrapper in (staticmethod, classmethod):
            if isinstance(value, wrapper):
                return self._method(value.__func__, [f"@{wrapper.__name__}"])
        if isinstance(value, property):
            return self._method(value.fget, ["@property"])
        if isinstance(value, FunctionType):
            return self._method(value, [], key)
        if issubclass(kind, enum.Enum):
            return [f"{key} = {value.value!r}"] if isinstance(value, kind) else []
        unneeded = key.startswith("__") or not self._is_mentioned(key)
        if unneeded or type(value).__name__.endswith("_descriptor") or key == "_abc_impl":
            return []
        text = self.expression(value, key)
        if _is_literal(text):
            return [f"{key} = {text}"]
        self.statements.append(f"{self._known[id(kind)]}.{key} = {text}")
        return []

    def _method(self, function: Any, decorators: list[str], name: str = "") -> list[str]:
        if not isinstance(function, FunctionType) or not self._ran(function):
            return []
        if _is_generated(function):
            return []
        wrapped = self._decorated(function)
        if wrapped is not None:
            return self._method(wrapped[1], [*decorators, f"@{wrapped[0]}"], name)
        tree = self._sources.function(function)
        if tree is None:
            return []
        tree.name = name or tree.name
        cells = {} if self._choice.closures else self._cells(function)
        return [*decorators, *self._text(function, tree, cells).splitlines()]

    def _ran(self, function: FunctionType) -> bool:
        code, ran = function.__code__, self._choice.executed
        return ran is None or (code.co_filename, code.co_firstlineno, code.co_name) in ran

    def _is_mentioned(self, name: str) -> bool:
        return self._mentioned is None or name in self._mentioned

    def _instance(self, obj: Any, hint: str) -> str:
        if isinstance(obj, torch.nn.Module):
            found = layers.expression(obj, self.expression, self.names.expression)
            if found is not None:
                return found
        kind = type(obj)
        recipe = self._recipe(obj, hint)
        if recipe is not None:
            return recipe
        cls = self.class_(kind)
        if isinstance(obj, tuple):  # a namedtuple
            return f"{cls}({', '.join(self.expression(item) for item in obj)})"
        name = self._keep(obj, self.names.fresh(_variable(hint, kind.__name__)))
        self.statements.append(f"{name} = {self._made_empty(obj, cls)}")
        if isinstance(obj, (dict, list)):
            method = "update" if isinstance(obj, dict) else "extend"
            plain = dict(obj) if isinstance(obj, dict) else list(obj)
            self.statements.append(f"{name}.{method}({self.expression(plain)})")
        for key, line in self._attributes(obj):
            self.statements.append(line(name, key))
        return name

    def _recipe(self, obj: Any, hint: str) -> str | None:
        """Return the expression of an object without attributes, by its `__reduce_ex__`.

        Python's iterators are such objects. None if the class does not support it, and for classes
        of the program.
        """
        kind = type(obj)
        if hasattr(obj, "__dict__") or not self.names.is_allowed(kind.__module__):
            return None
        try:
            reduced: Any = obj.__reduce_ex__(2)
        except TypeError:
            return None
        if type(reduced) is not tuple or reduced[0] is _NEW or any(reduced[3:]):
            return None
        make, given, state = reduced[0], reduced[1], (*reduced, None)[2]
        text = f"{self.expression(make)}({', '.join(map(self.expression, given))})"
        name = self._keep(obj, self.assigned(_variable(hint, kind.__name__), text))
        if state is not None:
            self.statements.append(f"{name}.__setstate__({self.expression(state)})")
        return name

    def _made_empty(self, obj: Any, cls: str) -> str:
        """Return an object without attributes; of a module, with those that every module has."""
        if not isinstance(obj, torch.nn.Module):
            return f"{cls}.__new__({cls})" if self._has_init(obj) else f"{cls}()"
        return f"torch.nn.Module.__new__({cls})" if self._needs_arguments(obj) else f"{cls}()"

    def _needs_arguments(self, module: torch.nn.Module) -> bool:
        """Return True if a module can't be made by calling its class: its own constructor, or
        torch's.
        """
        own = [k for k in type(module).__mro__ if not self.names.is_allowed(k.__module__)]
        made = [vars(kind)["__init__"] for kind in own if "__init__" in vars(kind)]
        if any(isinstance(init, FunctionType) and self._ran(init) for init in made):
            return True
        return layers.needs_arguments(type(module), self.names.is_allowed)

    def _has_init(self, obj: Any) -> bool:
        """Return True if the class in the program will have an `__init__`."""
        if dataclasses.is_dataclass(obj):
            return True
        makers = [vars(k).get("__init__") for k in type(obj).__mro__]
        init = next((m for m in makers if m is not None), None)
        return isinstance(init, FunctionType) and self._ran(init)

    def _attributes(self, obj: Any) -> list[tuple[str, Callable[[str, str], str]]]:
        """Return the assignments of an object's attributes."""
        found: list[tuple[str, Callable[[str, str], str]]] = []
        given: dict[str, Any] = dict(getattr(obj, "__dict__", {}))
        if isinstance(obj, torch.nn.Module):
            given = layers.attributes(obj)
            if self._needs_arguments(obj):
                found.append(("", lambda name, key: f"torch.nn.Module.__init__({name})"))
        for key, value in given.items():
            child = isinstance(value, (torch.nn.Module, torch.Tensor))
            if not self._is_mentioned(key) and not (child and key.isdigit()):
                continue
            text = self.expression(value, key)
            found.append((key, self._assignment(obj, key, text)))
        return found

    @staticmethod
    def _assignment(obj: Any, key: str, text: str) -> Callable[[str, str], str]:
        if isinstance(obj, torch.nn.Module) and key in obj._buffers:
            return lambda name, key: f"{name}.register_buffer({key!r}, {text})"
        if not key.isidentifier():
            return lambda name, key: f"setattr({name}, {key!r}, {text})"
        return lambda name, key: f"{name}.{key} = {text}"

    def assigned(self, hint: str, text: str) -> str:
        """Assign an expression to a new variable named after `hint`; return its name."""
        name = self.names.fresh(hint)
        self.statements.append(f"{name} = {text}")
        return name

    def _keep(self, obj: object, name: str) -> str:
        self._known[id(obj)] = name
        self._held.append(obj)
        return name


def _is_generated(function: FunctionType) -> bool:
    """Return True if a function was made of text while the program ran, like those of a
    dataclass.
    """
    code: CodeType = inspect.unwrap(function).__code__
    return code.co_filename == "<string>"


def _annotated(kind: type) -> Collection[str]:
    """Return the names that a class itself annotates: those of its fields, of a dataclass."""
    return frozenset(inspect.get_annotations(kind))


def _is_literal(text: str) -> bool:
    """Return True if an expression needs nothing that the program makes."""
    return not any(isinstance(node, ast.Name) for node in ast.walk(_parsed(text)))


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _variable(hint: str, kind: str) -> str:
    return hint if hint not in ("value", "self", "") and hint.isidentifier() else kind.lower()
