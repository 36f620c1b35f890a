"""The one normalisation of what is compared: two event logs of the same compile, in one spelling.

Lives here: what two runs of the same compile spell differently without being different: numbers
that a process gives out in the order in which it meets things (ShapeEnvs, describers, tensors,
positions in the event log), addresses, names made from random bits, and paths of caches.  Not here:
which events are compared at all, and which differences are of the process's history (`rules`).

Everything is a table or a pattern below; whatever they do not name is compared as it is.  A number
is replaced by its rank of first appearance, so that two things stay two and one stays one.  Usable
on any event of any recording; imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from torchreel.events.aot import Partition
from torchreel.events.fake_tensors import FakeConversion
from torchreel.events.shape_env import ProducedGuards, Replacement, ShapeEnvCreate
from torchreel.events.trace import TraceStrings
from torchreel.replay.compare.normalise_dynamo import DynamoNormaliser
from torchreel.replay.compare.rules import is_of_trace
from torchreel.store.documents.jsontypes import Json, canonical_json
from torchreel.store.documents.kinds import list_only
from torchreel.store.documents.sources import source_name
from torchreel.store.records import Event
from torchreel.store.trace.metadata import STRING

# -- text -----------------------------------------------------------------------------------------

# A character of a path. Patterns begin only where a path does, so that long ones are read once.
_PATH = r"[\w.+@~/-]"

# Inductor's cache directory, wherever it was (TORCHINDUCTOR_CACHE_DIR): its files lie in
# two-letter folders and are named by a digest, `/tmp/torchinductor_user/ab/cabc...py`.
_CACHE_FILE = re.compile(rf"(?<!{_PATH}){_PATH}*/[a-z0-9]{{2}}/(c[a-z0-9]{{50,52}})\b")
# Which graph of its process the code was first made for: code from a cache keeps it.
_AOT_ID = re.compile(r"(?m)^# AOT ID: \['\d+(_\w+)'\]$")
# The unique name that Dynamo gives to each compiled function (a UUID).
_COMPILED_FUNCTION = re.compile(r"__compiled_fn_\d+_[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}")
# The file of a graph's code, numbered as the process makes them (torch/fx/graph_module.py).
_GENERATED_FILE = re.compile(r"<eval_with_key>\.\d+")
# `id(graph)` at the end of a printed graph (torch/fx/graph_module.py: print_readable).
_GRAPH_ID = re.compile(r"(?m)^ ?# graph id: \d+$")
# `hash(tensor)`, an address, of a constant that Inductor keeps beside its code (graph.py:
# allocate_non_dup_const_name).
_CONSTANT = re.compile(
    r"(?m)^(\w+ = None  # device\([^()]*\) torch\.\w+ \([\d, ]*\) \([\d, ]*\)) [0-9a-f]+$"
)
# The default `repr` of an object: a constant in generated code is no address after " at ".  Objects
# of Cython's, as `numpy.random` has them, print it in capitals.
_ADDRESS = re.compile(r"(?<= at )0x(?:[0-9a-f]{6,16}|[0-9A-F]{6,16})\b")

# In code only as a whole `repr`: Inductor writes the functions of a pattern into its assertions.
_REPR_ADDRESS = re.compile(r"(?<= at )0x(?:[0-9a-f]{6,16}|[0-9A-F]{6,16})(?=>|; |, file )")

# The global that Dynamo installs for an object is named by its address: `__subclass_T_94784_c0`.
_INSTALLED_GLOBAL = re.compile(r"(?<=[A-Za-z0-9]_)\d{9,}(?=_c\d+\b)")

# What Python did when its stack was full: which function that was, depends on all that called it.
_STACK_END = re.compile(r"(?<=maximum recursion depth exceeded) (?:while|in) [\w ]+")

# Where a library is installed is the machine's: `/home/me/.venv/lib/python3.11/site-packages/`, or
# torch's own source tree.
_INSTALLED = re.compile(
    rf"(?<!{_PATH})(?:{_PATH}*/(?:site|dist)-packages/|[~/]{_PATH}*/(?=torch/(?:nn/|_)))"
)

# How Python quotes a text depends on what was in it before it was taken out.
_QUOTED = re.compile(r'"(<redacted(?: \d+)?>)"')

# With a cache and without one this function makes the same calls, on other lines of its own.
_LINE_FOR_CACHE = re.compile(
    r'(?<=File "torch/_inductor/compile_fx\.py", line )\d+(?=, in _compile_fx_inner)'
)

# So does torch's cache of fake results, which knows of some calls that they have none.
_CALL_FOR_CACHE = re.compile(
    r'(?<=File "torch/_subclasses/fake_tensor\.py", line )\d+(, in _cached_dispatch_impl\n)'
    r"(?:    .*(?:\n|\Z))*"
)

# When a cache was asked, and how long the compile took that it holds or will hold
# (torch/_inductor/codecache.py: CacheInfo), in the record of a hit or a miss.
_CACHE_TIME = re.compile(r'(?<=")(cache_event_time|time_taken_ns|time_saved_ns)": \d+')

# Where a guard is from (`  # app/model.py:9 in forward`): torch leaves out what the path has in
# common with that of torch (torch/utils/_traceback.py: shorten_filename).
_GUARD_FOLDER = re.compile(r"(?<=  # )[^\s:]*/(?=[^\s:/]+:\d+ in )")

# A file of torch: torch names it relative to the first directory of `sys.path` that it lies in,
# which may be one above the environment (`.venv/lib/python3.11/site-packages/torch/...`).
_TORCH_FILE = re.compile(r"^.*/(?=torch/)")


# An input of the benchmark in generated code (torch/_inductor/codegen/wrapper.py).
_EXAMPLE = re.compile(r"^(    \w+) = (?:rand_strided\(.*\)|\d+)$", re.MULTILINE)


def torch_file(path: object) -> str:
    """Return a file of torch by its path within torch."""
    return _TORCH_FILE.sub("", str(path))


def installed(text: str) -> str:
    """Return a text in which the files of libraries are named by their paths within the
    libraries.
    """
    return _INSTALLED.sub("", text) if "/" in text else text


def canonical_files(text: str) -> str:
    """Return a text in which files have names that another process gives them as well."""
    return _GENERATED_FILE.sub("<eval_with_key>", installed(text))


def canonical_code(text: str) -> str:
    """Return generated source without the directory it was written to and what only its process
    names.
    """
    text = _CONSTANT.sub(r"\1", _CACHE_FILE.sub(r"<cache>/\1", installed(text)))
    text = _QUOTED.sub(r"'\1'", text)
    return _COMPILED_FUNCTION.sub("__compiled_fn", _REPR_ADDRESS.sub("<address>", text))


def canonical_cached_code(text: str) -> str:
    """Return generated source, less what it has of the compile that it was first made for.

    That is the number of a graph, and the inputs of the benchmark at its end, with their sizes.
    """
    code, benchmark, inputs = _AOT_ID.sub(r"# AOT ID: ['n\1']", canonical_code(text)).partition(
        "\ndef get_args():\n"
    )
    return code + benchmark + _EXAMPLE.sub(r"\1 = <example>", inputs)


def canonical_text(text: str) -> str:
    """Return any text of an event log: generated source, a printed graph, a message."""
    text = _GUARD_FOLDER.sub("", _GRAPH_ID.sub("# graph id", canonical_code(text)))
    text = _GENERATED_FILE.sub("<eval_with_key>", text)
    text = _CALL_FOR_CACHE.sub(r"N\1", _LINE_FOR_CACHE.sub("N", text))
    text = _INSTALLED_GLOBAL.sub("<address>", _ADDRESS.sub("<address>", text))
    return _STACK_END.sub("", text)


def _is_dropped(kind: str, key: str) -> bool:
    return key in DROPPED and is_of_trace(kind)


def _guard_texts(texts: Json) -> Json:
    """Return the guards of one language, each with the file that it is from by its name."""
    return [canonical_text(str(text)) for text in texts] if isinstance(texts, list) else texts


# -- events ---------------------------------------------------------------------------------------

DROPPED = frozenset({"has_payload", "rank", "stack"})
"""Members of a trace record that say nothing of the compile, for a reason each: the MD5 of the
payload (which is compared itself), the rank of the process, torch's own frames (whose outer ones
are the program's in one event log and the replay's in the other)."""

PROCESS_STACKS = frozenset({"create_unbacked_symbol"})
"""Kinds whose `user_stack` torch takes from the frames of the process when Dynamo is not tracing.
(The event `unbacked.create` beside it has the user's.)"""

_TENSORS_WITHIN = (
    "base", "grad", "attrs", "unwrapped", "values", "crow_indices", "col_indices", "ccol_indices",
    "row_indices",
)  # fmt: skip
"""Fields of torch's description of a tensor that name other tensors by their ids."""
NUMBERED: Mapping[tuple[str, str], str] = {
    ("*", "env"): "ShapeEnv",
    (FakeConversion.kind, "describer"): "describer",
    (FakeConversion.kind, "tensor"): "tensor of a describer",
    (FakeConversion.kind, "base"): "tensor of a describer",
    ("describe_tensor", "describer_id"): "describer",
    ("describe_tensor", "id"): "tensor of a describer",
    **{("describe_tensor", field): "tensor of a describer" for field in _TENSORS_WITHIN},
    ("describe_tensor", "storage"): "storage of a describer",
    ("describe_storage", "describer_id"): "describer",
    ("describe_storage", "id"): "storage of a describer",
    ("describe_source", "describer_id"): "describer",
    ("describe_source", "id"): "tensor of a describer",
    ("create_unbacked_symbol", "node_id"): "object",
    ("create_symbol", "node_id"): "object",
    ("expression_created", "result_id"): "object",
    ("expression_created", "argument_ids"): "object",
}
"""Fields, by kind of event and name, that hold a number given out by the process: what it numbers.
A tensor's number counts within its describer."""

POSITIONS = frozenset({"parent", "body"})
"""Fields of `subgraph.*` events that hold the position of another event in the event log."""

TEXT_FIELDS = frozenset(
    {"error", "file_path", "filename", "message", "reason", "fail_reason", "key", "view_func"}
)
"""Fields whose text may name a path or an address (`canonical_text`)."""


@dataclass(frozen=True)
class Canonical:
    """An event as it is compared; equal events have equal `text`."""

    kind: str
    stage: str
    name: str
    data: Json
    payload: str | None = None
    cause: int | None = None
    """The number of compared events between this one and the one that it is a part of."""

    @property
    def text(self) -> bytes:
        """The bytes that have to be equal."""
        return canonical_json(
            [self.kind, self.stage, self.name, self.data, self.payload, self.cause]
        )

    def lines(self) -> Iterator[str]:
        """Yield one line for each fact, to be shown side by side."""
        yield f"{self.kind} {self.name}".rstrip()
        yield f"stage: {self.stage}"
        yield from _lines("", self.data)
        if self.payload is not None:
            yield "payload:"
            yield from self.payload.splitlines()


def _message(text: str) -> str:
    """Return any text of an event: an object that prints as its address may be named in it, or the
    reason of a recompile, with the folder of a guard.
    """
    return _STACK_END.sub(
        "", _REPR_ADDRESS.sub("<address>", _GUARD_FOLDER.sub("", installed(text)))
    )


def _lines(path: str, value: Json) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from _lines(f"{path}.{key}" if path else str(key), value[key])
    else:
        yield f"{path}: {canonical_json(value).decode('utf-8', 'backslashreplace')}"


_SYMBOL = re.compile(r"\b[a-z]+\d+\b")


def equal_symbols(events: Iterable[Event]) -> dict[str, str]:
    """Return the last symbol of each chain of symbols that replaced one another, by symbol.

    An attempt that is begun anew has a ShapeEnv of its own: what an earlier one found is forgotten.
    """
    found: dict[str, str] = {}
    for event in events:
        if event.kind == ShapeEnvCreate.kind:
            found = {}
        if isinstance(event.fields, Replacement) and _is_symbol(event.fields.expr):
            new = str(event.fields.expr)
            found = {old: new if last == event.name else last for old, last in found.items()}
            found[event.name] = found.get(new, new)
    return found


def _is_symbol(expr: object) -> bool:
    return isinstance(expr, str) and _SYMBOL.fullmatch(expr) is not None


@dataclass
class Normaliser:
    """Brings the events of one event log into canonical form, one after the other, in order."""

    files: dict[int, str] = field(default_factory=dict)
    """torch's trace numbers the files in its stacks, once in a process: by number."""
    dynamo: DynamoNormaliser = field(default_factory=DynamoNormaliser)
    equal: Mapping[str, str] = field(default_factory=dict)
    """Symbols that the recorded ShapeEnv replaced by others: by symbol."""
    _numbers: dict[tuple[str, Json], dict[int, int]] = field(default_factory=dict)
    _places: dict[int, int] = field(default_factory=dict)

    def learn(self, event: Event) -> None:
        """Take in what an event says of the numbers of files; to be called for every event."""
        data = event.data
        if event.kind == STRING and isinstance(data, Mapping):
            self._learn(data.get(STRING))
        elif event.kind == TraceStrings.kind and isinstance(data, Mapping):
            for pair in list_only(data.get("names")):
                self._learn(pair)

    def _learn(self, pair: Json) -> None:
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], int):
            self.files[pair[1]] = str(pair[0])

    def canonical(self, event: Event, payload: str | None = None) -> Canonical:
        """Return the canonical form of the next event that is compared; `payload` is the text it
        has.
        """
        place = len(self._places)
        self._places[event.seq] = place
        return Canonical(
            event.kind,
            event.stage or "",
            self.dynamo.text(event.name),
            self._data(replace(event, data=self.dynamo.data(event)), place),
            None if payload is None else self.payload(payload),
            self._distance(place, event.cause),
        )

    def payload(self, text: str) -> str:
        """Return the canonical form of a payload."""
        return _CACHE_TIME.sub(r'\1": <time>', canonical_text(self.dynamo.payload(text)))

    def _distance(self, place: int, seq: Json) -> int | None:
        """Return the distance to an earlier event, in place of its position; None if unknown.

        An additional event would shift the positions of all that follow it.
        """
        found = self._places.get(seq) if isinstance(seq, int) else None
        return None if found is None else place - found

    def _data(self, event: Event, place: int) -> Json:
        data = event.data
        if not isinstance(data, Mapping):
            return data
        return {
            key: self._value(event.kind, key, value, data, place)
            for key, value in data.items()
            if not _is_dropped(event.kind, key)
        }

    def _value(
        self, kind: str, key: str, value: Json, around: Mapping[str, Json], place: int
    ) -> Json:
        space = NUMBERED.get((kind, key)) or NUMBERED.get(("*", key))
        if space is not None:
            return self._number(space, value, around)
        if key in POSITIONS and kind.startswith("subgraph."):
            return self._distance(place, value)
        if (kind, key) == (FakeConversion.kind, "source"):
            # Earlier recordings have its tree.
            return source_name(value) if isinstance(value, Mapping) else value
        if kind == Partition.kind and key in ("saved", "symbols"):
            return self._with_equal_symbols(value)
        if key == "user_stack" and kind in PROCESS_STACKS:
            return None
        if key == "user_stack" and isinstance(value, list):
            return [self._frame(frame) for frame in value]
        if isinstance(value, Mapping):
            return {
                inner: self._value(kind, inner, item, value, place)
                for inner, item in value.items()
                if not _is_dropped(kind, inner)
            }
        if key == "pathname":
            return torch_file(value)
        if (kind, key) == (ProducedGuards.kind, "guards") and isinstance(value, list):
            return [_guard_texts(item) for item in value]
        if isinstance(value, str) and key in TEXT_FIELDS:
            return canonical_text(value)
        return _message(value) if isinstance(value, str) else value

    def _with_equal_symbols(self, value: Json) -> Json:
        """Return saved values with one symbol for all that are equal.

        A result that the fake-tensor cache made before two symbols were known to be equal has the
        older one in its strides, and the event of a lookup does not tell those of dense tensors.
        """
        if isinstance(value, list):
            return [self._with_equal_symbols(item) for item in value]
        if not isinstance(value, str):
            return value
        return _SYMBOL.sub(lambda found: self.equal.get(found[0], found[0]), value)

    def _number(self, space: str, value: Json, around: Mapping[str, Json]) -> Json:
        if isinstance(value, list):
            return [self._number(space, item, around) for item in value]
        if isinstance(value, Mapping):
            return {name: self._number(space, item, around) for name, item in value.items()}
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        owner: Json = None
        if space.endswith("of a describer"):
            owner = around.get("describer", around.get("describer_id"))
        known = self._numbers.setdefault((space, owner), {})
        return known.setdefault(value, len(known))

    def _frame(self, frame: Json) -> Json:
        if not isinstance(frame, Mapping) or not isinstance(number := frame.get("filename"), int):
            return frame
        return {**frame, "filename": installed(str(self.files.get(number, number)))}
