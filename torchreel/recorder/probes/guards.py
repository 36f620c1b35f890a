"""Guards: what has to hold for a compiled frame to be used again.

Lives here: every guard of a compile, with what torch made of it, and the ambient state that the
compile is tied to.  Not here: guards of the ShapeEnv on their way (`shape_env`), which guard failed
later (`frames`).

A compile adds thousands of guards: they are looked at once, in one pass, when their C++ tree has
been built.  The text of that tree is torch's own event `dynamo_cpp_guards_str`, which follows.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchreel.events.guards import AliasGuard, AmbientState, Guard, GuardManager, GuardSources
from torchreel.patterns import lazy_text
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit
from torchreel.recorder.environment import ENVIRONMENT
from torchreel.recorder.event_log import failures

if TYPE_CHECKING:
    from torchreel.formats.sources import SourceTable
    from torchreel.recorder.recorder import Recorder

CHECK = AttachPoint(
    "torch._dynamo.guards",
    "CheckFunctionManager.compile_check_fn",
    "the guards that are kept, after each has got its code and the tree its nodes",
)
LEFT = AttachPoint(
    "torch._dynamo.output_graph",
    "OutputGraph.call_cleanup_hooks",
    "the guards of an attempt that failed, which are never built",
)
ATTACH_POINTS = (CHECK, LEFT)

EVENTS: Events = {
    GuardManager: (CHECK,),
    AmbientState: (CHECK,),
    GuardSources: (CHECK,),
    Guard: (CHECK,),
    AliasGuard: (CHECK,),
}

_LOCAL_CLASS_GUARDS = ("TYPE_MATCH", "BUILTIN_MATCH")
"""Types that torch can write down unless the class is local to a function."""


def _check_function(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    # `aot_compile` has its guards made when its compile has ended: they belong to none here.
    if outcome.error is not None or not recorder.is_compiling or not recorder.wants_guards:
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
        recorder.note(GuardSources(facts.sources.rows))
    finally:
        here.cause = outer


def _note_manager(recorder: Recorder, manager: Any, builder: Any, kept: list[Any]) -> int:
    graph = manager.output_graph
    return recorder.note(
        GuardManager(
            guards=len(kept),
            left_out=len(graph.guards) - len(kept),
            key_order=tuple(sorted(graph.guard_on_key_order, key=lambda source: str(source.name))),
            no_aliasing=tuple(builder.no_tensor_aliasing_names),
            ids=tuple(builder.id_matched_objs),
            differing=tuple(manager.guard_manager.diff_guard_sources),
        )
    )


def _left(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: object,
    result: object,
    error: BaseException | None,
) -> None:
    """Note what an attempt at a frame had read of modules, if it made no guards of that."""
    ended = sys.exc_info()[1]
    if ended is None or recorder.options.settings.frames == "none" or not recorder.is_compiling:
        return
    if recorder.options.settings.frames == "all" or not failures.is_restart(ended):
        _note_read(recorder, args[0].guards)


def _note_read(recorder: Recorder, kept: Iterable[Any]) -> None:
    """Note the members of modules that a frame depends on: its bundle holds their content."""
    entry = recorder.entry_here()
    for name in {guard.originating_source.name for guard in kept}:
        for found in _VARIABLE.finditer(name):
            entry.read.add((*ENVIRONMENT, found[1]))
        for found in _PATH.finditer(_OF_CLASS.sub(r"\1.\2", name)):
            entry.read.add(tuple(found[0].replace("']", "").removeprefix("G['").split(".")))


_OF_CLASS = lazy_text(
    r"dict\(type\((G\['\w+'\][\w.]*)\)(?:\.__mro__\[\d+\])?\.__dict__\)\['(\w+)'\]"
)
"""A member of an object's class, as Dynamo looks it up past the object."""
_PATH = lazy_text(r"G\['\w+'\](?:\.\w+)*")
_VARIABLE = lazy_text(r"\.environ\._data\[b'([^'\\]+)'\]")


def _note_ambient(recorder: Recorder, graph: Any) -> None:
    recorder.note(
        AmbientState(
            global_state=graph.global_state_guard.__getstate__(),
            device=None if graph.current_device is None else str(graph.current_device),
            torch_functions=tuple(
                type_name(type(mode)) for mode in graph.torch_function_mode_stack
            ),
            functorch=tuple(str(layer.key()) for layer in graph.functorch_layers),
            dual_level=graph.dual_level,
        )
    )


def _note_aliases(recorder: Recorder, graph: Any) -> None:
    for guard in graph.aotautograd_guards:
        if hasattr(guard, "input_source_a"):
            same, apart = (guard.input_source_a, guard.input_source_b), ()
        else:
            same, apart = tuple(guard.overlapping_sources), tuple(guard.non_overlapping_sources)
        recorder.note(AliasGuard(same, apart), type(guard).__name__)


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
        Guard(
            expression=name,
            source=facts.sources.add(source),
            types=tuple(types),
            code=code,
            class_=None if cls is None else type_name(cls),
            portable=portable,
            object=None if portable else describe(_guarded(guard, facts)),
            arguments=None if create is function else _arguments(create),
        ),
        kind,
        stack=recorder.user_stack(guard.user_stack or ()),
    )


def type_name(cls: type) -> str:
    """Return the qualified name of a class."""
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _guarded(guard: Any, facts: _Facts) -> object:
    """Return the object whose identity a guard checks, if it still is there."""
    reference = guard.obj_weakref
    found = reference() if isinstance(reference, weakref.ReferenceType) else None
    return facts.values.get(guard.originating_source) if found is None else found


def describe(found: object) -> str | None:
    """Return the qualified name of an object or its class, and its place; None for None."""
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
    """Return the plain arguments of a guard's partial by position or name; None if there are none.

    The guarded object itself is left out.
    """
    given = {str(number): value for number, value in enumerate(create.args)} | create.keywords
    plain = {name: value for name, value in given.items() if _is_plain(value)}
    return plain or None


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int)) or hasattr(value, "guard_source")


PROBES = (Probe(CHECK, _check_function), Tap(LEFT, _left))
