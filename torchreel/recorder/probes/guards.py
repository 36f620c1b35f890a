"""Guards: what has to hold for a compiled frame to be used again.

Lives here: every guard of a compile, with what torch made of it, and the ambient state that the
compile is tied to.  Not here: guards of the ShapeEnv on their way (`shape_env`), which guard failed
later (`frames`).

A compile adds thousands of guards: they are looked at once, in one pass, when their C++ tree has
been built.  The text of that tree is torch's own event `dynamo_cpp_guards_str`, which follows.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchreel.recorder.attach import AttachPoint, Call, Probe, Visit
from torchreel.recorder.kinds import Kind

if TYPE_CHECKING:
    from torchreel.formats.sources import SourceTable
    from torchreel.recorder.recorder import Recorder

CHECK = AttachPoint(
    "torch._dynamo.guards",
    "CheckFunctionManager.compile_check_fn",
    "the guards that are kept, after each has got its code and the tree its nodes",
)
ATTACH_POINTS = (CHECK,)

MANAGER = Kind(
    name="guards.manager",
    system=4,
    meaning="The guards of a compile are put together; the events of its guards are part of it. "
    "The tree itself is the event `dynamo_cpp_guards_str` that follows.",
    fields={
        "guards": "guards that are kept",
        "left_out": "guards that a filter of the program's took out",
        "key_order": "Sources of the dicts whose order of keys is guarded",
        "no_aliasing": "expressions of the tensors that must not be one and the same",
        "ids": "names of the locals whose identity counts against the recompile limit",
        "differing": "expressions that are checked first: tensors, and what has failed before",
    },
    points=(CHECK,),
    probe="guards",
)
AMBIENT = Kind(
    name="guards.ambient",
    system=4,
    meaning="The state outside of the frame that its guards hold on to.",
    fields={
        "global_state": "grad mode, autocast, deterministic algorithms, default dtype, threads and "
        "the like, as GlobalStateGuard prints them (JSON)",
        "device": "the default device (torch.set_default_device), or null",
        "torch_functions": "classes of the torch function modes, outermost first",
        "functorch": "the functorch transforms that are open, outermost first",
        "dual_level": "level of forward-mode differentiation, -1 for none",
    },
    points=(CHECK,),
    probe="guards",
)
GUARD = Kind(
    name="guards.guard",
    system=4,
    meaning="A guard; its name is its type, its stack the user's line that needed it.",
    fields={
        "expression": "what is guarded, as Python; '' for ambient state",
        "source": "its Source, by its place in the event `guards.sources` of the compile",
        "types": "what torch made of it: a type may fall back on others",
        "code": "the checks, as Python; those that only the C++ tree knows (the hooks of modules, "
        "for one) are in its text",
        "class": "class of the guarded object",
        "portable": "whether torch could write it down for another process",
        "object": "a description of the guarded object where its identity is what is checked",
        "arguments": "what else the guard was made with",
    },
    points=(CHECK,),
    exact=True,
    probe="guards",
)
SOURCES = Kind(
    name="guards.sources",
    system=4,
    meaning="The Sources of a compile's guards, each once "
    "(`torchreel.formats.sources.expand_source`).",
    fields={"rows": "class and fields; `{at: row}` is a Source in another row"},
    points=(CHECK,),
    exact=True,
    probe="guards",
)
ALIAS = Kind(
    name="guards.alias",
    system=4,
    meaning="AOTAutograd asks for a guard on the aliasing of inputs; the name is torch's class.",
    fields={
        "same": "Sources that must be one object, or whose memory may overlap",
        "apart": "Sources whose memory must not overlap with any other",
    },
    points=(CHECK,),
    pages=False,
    probe="guards",
)
KINDS = (MANAGER, AMBIENT, SOURCES, GUARD, ALIAS)

_LOCAL_CLASS_GUARDS = ("TYPE_MATCH", "BUILTIN_MATCH")
"""Types that torch can write down unless the class is local to a function."""


def _check_function(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is not None or not recorder.wants_guards:
        return
    manager, builder, kept = (
        call.args[0],
        call.argument(1, "builder"),
        call.argument(2, "guards_out"),
    )
    here = recorder.spans.here
    outer = here.cause
    here.cause = _note_manager(recorder, manager, builder, kept)
    try:
        _note_ambient(recorder, manager.output_graph)
        _note_aliases(recorder, manager.output_graph)
        facts = _facts(manager, builder)
        for guard in kept:
            _note_guard(recorder, guard, facts)
        if recorder.options.settings.frames == "all":
            _note_read(recorder, kept)
        recorder.note(SOURCES, "", facts.sources.rows)
    finally:
        here.cause = outer


def _note_manager(recorder: Recorder, manager: Any, builder: Any, kept: list[Any]) -> int:
    graph = manager.output_graph
    return recorder.note(
        MANAGER,
        "",
        len(kept),
        len(graph.guards) - len(kept),
        tuple(sorted(graph.guard_on_key_order, key=lambda source: str(source.name))),
        tuple(builder.no_tensor_aliasing_names),
        tuple(builder.id_matched_objs),
        tuple(manager.guard_manager.diff_guard_sources),
    )


def _note_read(recorder: Recorder, kept: list[Any]) -> None:
    """Note the members of modules that a frame depends on: its bundle holds their content."""
    names = (_MEMBER.search(guard.originating_source.name) for guard in kept)
    recorder.entry_here().read.update((found[1], found[2]) for found in names if found is not None)


# What inlined code of another module finds there (OutputGraph.import_source).
_MEMBER = re.compile(r"G\['(__import_\w+)'\]\.(\w+)")


def _note_ambient(recorder: Recorder, graph: Any) -> None:
    recorder.note(
        AMBIENT,
        "",
        graph.global_state_guard.__getstate__(),
        None if graph.current_device is None else str(graph.current_device),
        tuple(type_name(type(mode)) for mode in graph.torch_function_mode_stack),
        tuple(str(layer.key()) for layer in graph.functorch_layers),
        graph.dual_level,
    )


def _note_aliases(recorder: Recorder, graph: Any) -> None:
    for guard in graph.aotautograd_guards:
        if hasattr(guard, "input_source_a"):
            same, apart = (guard.input_source_a, guard.input_source_b), ()
        else:
            same, apart = tuple(guard.overlapping_sources), tuple(guard.non_overlapping_sources)
        recorder.note(ALIAS, type(guard).__name__, same, apart)


class _Facts(NamedTuple):
    """Facts about one compile that describe its guards."""

    unportable: frozenset[str]
    """Types of guards that torch can't write down."""
    tensors: Mapping[str, str]
    """The check of each tensor in the C++ tree, by its expression."""
    values: Mapping[Any, object]
    """The values of the Sources when the guards were built."""
    sources: SourceTable


_TENSOR_CHECK = "check_tensor("


def _facts(manager: Any, builder: Any) -> _Facts:
    from torchreel.formats.sources import SourceTable

    parts = manager.guard_manager.code_parts
    checks = [part for part in parts if part.startswith(_TENSOR_CHECK)]
    return _Facts(
        frozenset(type(manager).UNSUPPORTED_SERIALIZATION_GUARD_TYPES),
        {part[len(_TENSOR_CHECK) :].partition(", ")[0]: part for part in checks},
        builder.src_get_value_cache,
        SourceTable(),
    )


def _note_guard(recorder: Recorder, guard: Any, facts: _Facts) -> None:
    create = guard.create_fn
    function = create.func if isinstance(create, partial) else create
    kind, source, types = function.__name__, guard.originating_source, guard.guard_types or ()
    local = kind in _LOCAL_CLASS_GUARDS and guard._unserializable
    portable = not (local or kind in facts.unportable or not facts.unportable.isdisjoint(types))
    guarded = guard.guarded_class_weakref
    cls = guarded() if guarded is not None else None
    name = source.name
    code = tuple(guard.code_list or ())
    if kind == "TENSOR_MATCH" and name in facts.tensors:
        code = (facts.tensors[name], *code)
    recorder.note(
        GUARD,
        kind,
        name,
        facts.sources.add(source),
        tuple(types),
        code,
        None if cls is None else type_name(cls),
        portable,
        None if portable else describe(_guarded(guard, facts)),
        None if create is function else _arguments(create),
        stack=recorder.user_stack(guard.user_stack or ()),
    )


def type_name(cls: type) -> str:
    """The qualified name of a class."""
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _guarded(guard: Any, facts: _Facts) -> object:
    """The object whose identity a guard checks, if it still is there."""
    reference = guard.obj_weakref
    found = reference() if isinstance(reference, weakref.ReferenceType) else None
    return facts.values.get(guard.originating_source) if found is None else found


def describe(found: object) -> str | None:
    """An object as far as a name can say it; no text of its own."""
    if isinstance(found, FunctionType):
        module = f"{found.__module__}." if found.__module__ else ""
        return f"{module}{found.__qualname__} {_place(found.__code__)}"
    if isinstance(found, CodeType):
        return f"{found.co_qualname} {_place(found)}"
    if isinstance(found, ModuleType):
        return found.__name__
    if isinstance(found, type):
        return type_name(found)
    return None if found is None else f"an object of {type_name(type(found))}"


def _place(code: CodeType) -> str:
    return f"({code.co_filename}:{code.co_firstlineno})"


def _arguments(create: partial[Any]) -> dict[str, object] | None:
    """Return what a guard of a parametrised type was made with; the guarded object itself is
    left out.
    """
    given = {str(number): value for number, value in enumerate(create.args)} | create.keywords
    plain = {name: value for name, value in given.items() if _is_plain(value)}
    return plain or None


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int)) or hasattr(value, "guard_source")


PROBES = (Probe(CHECK, _check_function),)
