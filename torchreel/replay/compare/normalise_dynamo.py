"""The canonical form of Dynamo's guards, bytecode and messages, which hold numbers of the process.

Lives here: identities in guards, the random part of names, who called the frame, measured times.
Not here: everything that the later stages write (`normalise`, which calls this).  An identity is
replaced by its rank of first appearance: what was one object has to be one object again.
"""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchreel.events.fake_tensors import FakeConversion
from torchreel.events.guards import Guard
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Event

_NAMES = re.compile(
    # Names of globals (OutputGraph.install_global_by_id) end in the id of the value, an address: of
    # seven digits for what is in the interpreter itself, where that is not relocated.
    r"(?P<before>_(?=\d{7,}(?:_\d{7,})?_c\d)|___unnamed_scope_|__builtins_dict___|__dtensor_spec_)(?P<number>\d+)"
)
_IDENTITIES = re.compile(
    r"(?P<before>"
    # ID_MATCH, TYPE_MATCH, FAKE_SCRIPT_TYPE_MATCH (torch/_dynamo/guards.py)
    # The source of what is checked may end in an index: `list.__getitem__(L['l'], 1), 94...)`.
    r"__check_(?:obj_id|type_id|fake_script_type)\(.*?, "
    r"(?=(?:0x[0-9a-f]+|\d+)\)(?!, (?:0x|\d)|[\].\[(]))|"
    r"___dict_version\(.*?\) == |"
    r"data_ptr\(\) == |"
    # Of a backend (describe_backend in torch/_dynamo/guards.py).
    r"\(id=(?=0x))"
    r"(?P<number>(?:0x[0-9a-f]+)|\d+)"
)
# A set of classes or functions prints in the order of their addresses.
_OBJECTS = re.compile(r"\{(?P<items><[^{}]*)\}")
# A set of strings prints in the order of their hashes, which follow from a seed of the process; one
# of dtypes in that of their addresses.
_WORD = r"""(?:b?'(?:[^'\\\n]|\\.)*'|b?"(?:[^"\\\n]|\\.)*"|[\w.+-]+)"""
# A word, a tuple of them, or a call such as `device(type='cpu')`.
_ITEM = rf"""(?:[\w.]*\((?:(?:\w+=)?{_WORD}(?:, ?|(?=\))))*\)|{_WORD})"""
_ITEMS = re.compile(_ITEM)
_LITERALS = re.compile(rf"\{{(?P<items>{_ITEM}(?:, {_ITEM})+)\}}")
# `<function f at 0x...>`, `<weakref at 0x...; to 'A' at 0x...>`, `<code object f at 0x..., file`.
_OBJECT_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>|; |, file )")
# The random half of the name of a compiled function; its number is the process's to give, and a
# replay of a frame imposes the counter.
_RANDOM = re.compile(r"(__compiled_fn_\d+)_[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}")
_LATENCY = re.compile(r"(?m)^Guard latency = [\d.]+ us$")
_STACK_FRAME = re.compile(
    r'(?m)^(?P<indent> +)File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<name>.*)\n'
    r"(?:(?P=indent)  .*\n)*"
)

# Where a constant stands in `co_consts` depends on which equal strings are one object in a process;
# the constant itself stands beside it, but for the names of keywords under Python 3.11.
_PLACE = re.compile(
    r"\b(LOAD_CONST|RETURN_CONST|KW_NAMES) +\d+ \(|\b(KW_NAMES) +\d+$", re.MULTILINE
)
# A set of the program's that Dynamo builds again: constants in the order of their hashes.
_BUILT_SET = re.compile(r"\bBUILD_SET +(\d{1,6})$")
_CONSTANT = re.compile(r"(?<=\bLOAD_CONST )\(.*\)$")
# A guard of the whole process names the line that first needed it, in whichever compile that was.
_FIRST_NEEDED = re.compile(
    r"(\.compare_functorch_state\(.*?\)|\.forward_ad\._current_level == -?\d+) +# .*"
)
_RESUMES = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+")  # torch/_dynamo/resume_execution.py

_SETS = frozenset(
    (
        "non_compliant_ops", "compliant_custom_ops", "restart_reasons", "tensorify_float_failure",
        "recompile_user_contexts", "inductor_provenance",
    )
)  # fmt: skip
"""Metrics that torch collects in a set, and writes down in whatever order that has in a process."""
_HEXADECIMAL = frozenset(string.hexdigits)
_METRICS = frozenset({"compilation_metrics", "bwd_compilation_metrics"})
_MEASURED = re.compile(r".*(_s|_us|_ns|_time|_config|_version)|frame_key|(exception_)?stack_trace")
"""Metrics that are times, or say again what the environment and the config of the process are."""

TEXTS = frozenset(
    (
        "code", "expression", "reason", "guards", "source", "names", "value", "view_func",
        "global_name", "recompile_reason", "restart_reasons", "fail_reason",
    )
)  # fmt: skip
"""Fields of Dynamo's events whose text may hold an identity."""
_KINDS = (
    "guards.", "frame.", "output_graph.", "describe_", "runtime_assert.", "scalar.",
    FakeConversion.kind,
)  # fmt: skip


Caller = tuple[str, int, str]
"""File, line and name of a frame that was on the stack when the compiled one was called."""


@dataclass
class DynamoNormaliser:
    """The spelling of one event log; `frame` is the file and the name of the compiled frame."""

    frame: tuple[str, str] = ("", "")
    lines: tuple[int, int] = (0, sys.maxsize)
    """The first and the last line of the frame: a method may call one of the same name."""
    callers: frozenset[Caller] = frozenset()
    """The frames that called it; in a replay, those that called the recorded one as well."""
    _identities: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Know a function of Dynamo's making by the name under which torch prints it as well."""
        resumed = ((file, line, _resumed(name)) for file, line, name in self.callers)
        self.callers |= frozenset(resumed)

    def text(self, text: str) -> str:
        """Return any text of Dynamo's."""
        text = _RANDOM.sub(r"\1", _LATENCY.sub("Guard latency", text))
        text = _OBJECTS.sub(_in_order, text) if "{<" in text else text
        text = _LITERALS.sub(_sorted, text) if "{" in text else text
        text = _OBJECT_ADDRESS.sub(" at <address>", text)
        # First the names: a check may be of what has one.
        return _IDENTITIES.sub(self._identity, _NAMES.sub(self._identity, text))

    def payload(self, text: str) -> str:
        """Return a payload: it may also quote bytecode, or the stack from the outermost caller
        on.
        """
        text = _FIRST_NEEDED.sub(r"\1", text) if "  # " in text else text
        text = _PLACE.sub(_without_place, self.text(text))
        if "BUILD_SET" in text:
            text = _with_sorted_sets(text)
        return self._without_callers(text)

    def data(self, event: Event) -> Json:
        """Return the data of an event, where it is one of Dynamo's."""
        if event.kind in _METRICS:
            return self._value("", _without_measures(event.data))
        if not event.kind.startswith(_KINDS):
            return event.data
        data = self._value("", event.data)
        return _of_this_compile(event.name, data) if event.kind == Guard.kind else data

    def _value(self, key: str, value: Json) -> Json:
        if isinstance(value, Mapping):
            return {name: self._value(name, item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._value(key, item) for item in value]
        return self.text(value) if isinstance(value, str) and key in TEXTS else value

    def _identity(self, found: re.Match[str]) -> str:
        rank = self._identities.setdefault(found["number"], len(self._identities))
        return f"{found['before']}<{rank}>"

    def _without_callers(self, text: str) -> str:
        """Return stacks from the frame on: who called it is the program, or the replay."""
        parts: list[str] = []
        kept = 0
        for stack in _stacks(text):
            parts.append(text[kept : stack[0].start()])
            kept = self._start(stack)
        return "".join([*parts, text[kept:]])

    def _start(self, stack: Sequence[re.Match[str]]) -> int:
        """Return where the frame begins in a stack; where its callers end if it is not in it.

        A resumed frame may break at the line that called it: torch shows the two as one, which is
        taken for the caller, for a stack may also end there.
        """
        others = [found for found in stack if not self._is_caller(found)]
        own = (found for found in others if self._is_frame(found))
        found = next(own, others[0] if others else None)
        return stack[-1].end() if found is None else found.start()

    def _is_caller(self, found: re.Match[str]) -> bool:
        return (found["file"], int(found["line"]), found["name"]) in self.callers

    def _is_frame(self, found: re.Match[str]) -> bool:
        file, name = self.frame
        first, last = self.lines
        named = found["file"] == file and found["name"] in (name, _resumed(name))
        return named and first <= int(found["line"]) <= last


def _stacks(text: str) -> list[list[re.Match[str]]]:
    """Return the frames of each stack in a text: those that follow one another without a gap."""
    stacks: list[list[re.Match[str]]] = []
    for found in _STACK_FRAME.finditer(text):
        if not stacks or stacks[-1][-1].end() != found.start():
            stacks.append([])
        stacks[-1].append(found)
    return stacks


def _without_place(found: re.Match[str]) -> str:
    return f"{found[1]} (" if found[1] else found[2]


def _with_sorted_sets(text: str) -> str:
    """Return bytecode with the constants of each set that it builds in order."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if found := _BUILT_SET.search(line):
            places = _constants_before(lines, at, int(found[1]))
            constants = sorted(_CONSTANT.findall(lines[place])[0] for place in places)
            for place, constant in zip(places, constants, strict=True):
                lines[place] = _CONSTANT.sub(lambda _, text=constant: text, lines[place])  # type: ignore[misc]
    return "\n".join(lines)


def _constants_before(lines: list[str], at: int, count: int) -> list[int]:
    """Return the places of the constants that a set is built of; [] if it has other items."""
    found: list[int] = []
    while len(found) < count:
        at -= 1
        if at < 0 or not (_CONSTANT.search(lines[at]) or "EXTENDED_ARG" in lines[at]):
            return []
        if "EXTENDED_ARG" not in lines[at]:
            found.append(at)
    return found[::-1]


def _in_order(found: re.Match[str]) -> str:
    """Return a set of objects as one that does not depend on where they are in memory."""
    items = sorted(_OBJECT_ADDRESS.sub(" at <address>", found["items"]).split(", "))
    return f"{{{', '.join(items)}}}"


def _sorted(found: re.Match[str]) -> str:
    """Return a set of literals or names as one that does not depend on their hashes."""
    return f"{{{', '.join(sorted(_ITEMS.findall(found['items'])))}}}"


def _resumed(name: str) -> str:
    """Return the function that a function of Dynamo's making goes on with."""
    return _RESUMES.sub(r"\1", name)


def _of_this_compile(kind: str | None, data: Json) -> Json:
    """Return a guard that says each check once.

    Guards on the state of the process live as long as it does (`_guards_singleton`), and each
    compile adds its check at the end.
    """
    if not isinstance(data, Mapping):
        return data
    of_process = data.get("expression") == "" and kind != "SHAPE_ENV"
    found = dict(data)
    for key in ("code", "types"):
        if isinstance(value := found.get(key), list):
            found[key] = value[-1:] if of_process else list(dict.fromkeys(map(str, value)))
    return found


def _without_measures(data: Json) -> Json:
    if not isinstance(data, Mapping):
        return data
    return {
        kind: {k: _metric(k, value) for k, value in found.items() if not _MEASURED.fullmatch(k)}
        if isinstance(found, Mapping)
        else found
        for kind, found in data.items()
    }


def _without_address(items: list[str]) -> list[str]:
    """Return a set without the digits of an address.

    Torch adds to `tensorify_float_failure` each character of `<function sym_max at 0x7f...>`.
    """
    if "<" not in items or "x" not in items:
        return items
    return [item for item in items if item not in _HEXADECIMAL]


def _metric(name: str, value: Json) -> Json:
    if name in _SETS and isinstance(value, list):
        return sorted(_without_address(list(map(str, value))))
    # Of features all of which are set aside, none is left.
    return None if value == {} and name == "feature_usage" else value
