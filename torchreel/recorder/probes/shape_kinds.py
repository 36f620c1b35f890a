"""Kinds of events of rows 5 to 8 of the table of systems: ShapeEnv to scalars.

Lives here: what the events mean.  Not here: who notes them (`shape_state`, `shape_env`, `scalars`).
"""

from __future__ import annotations

from torchreel.recorder.kinds import Kind
from torchreel.recorder.probes.dynamo import BACKEND
from torchreel.recorder.probes.inductor import INNER
from torchreel.recorder.probes.shape_points import (
    ASSERT,
    CALL_POINTS,
    CALLS,
    COMPUTE_BINDINGS,
    ERROR,
    INIT,
    INSERTION,
    NEW_SYMBOL,
    PRODUCE,
    REBINDING,
    REFINE,
    REPLACE,
    TENSORIFY,
    WRAP_FLOAT,
    WRAP_INT,
)

_ENV = "number of the ShapeEnv in this recording"
_PROBE = "shape_env"
_BY_NAME = dict(zip(CALLS, CALL_POINTS, strict=True))
_CHANGING = (*CALL_POINTS, NEW_SYMBOL, ASSERT, REPLACE, REFINE)
_GUARDING = (_BY_NAME["_evaluate_expr"], ASSERT)
_CREATING = (NEW_SYMBOL, _BY_NAME["_create_symbolic_sizes_strides_storage_offset"])
_UNBACKED = tuple(point for name, point in _BY_NAME.items() if name.startswith("create_unbacked"))
_RENAMING = (_BY_NAME["_rename_unbacked_to"],)
_SIZING = (_BY_NAME["_constrain_range_for_size"], REPLACE)

CREATE = Kind(
    "shape_env.create", 5, "A ShapeEnv was made, or seen for the first time.",
    {"env": _ENV, "settings": "its settings", "validation": "whether Z3 validates it"},
    points=(INIT,), probe=_PROBE,
)  # fmt: skip
CALL = Kind(
    "shape_env.call", 5,
    "The outermost call of a method that changed a ShapeEnv; the changes are parts of it. "
    "The name is the method's.",
    {"env": _ENV, "arguments": "by name; objects by their type"},
    points=_CHANGING, probe=_PROBE,
)  # fmt: skip
SYMBOL = Kind(
    "shape_env.symbol", 5, "A backed symbol was created.",
    {"env": _ENV, "symbol": "its name", "assumptions": "SymPy's, `!` for not",
     "hint": "its value in this run", "range": "lower and upper bound",
     "sources": "where guards read it, the first one first"},
    points=_CREATING, probe=_PROBE,
)  # fmt: skip
DUCK = Kind(
    "shape_env.duck", 5, "An input with the hint of a known symbol shares that symbol.",
    {"env": _ENV, "symbol": "its name", "source": "the other input",
     "first": "whether guards read the symbol there from now on"},
    points=_CREATING, probe=_PROBE,
)  # fmt: skip
RANGE = Kind(
    "shape_env.range", 5, "The range of a symbol was refined.",
    {"env": _ENV, "symbol": "its name", "old": "bounds before", "new": "bounds from now on"},
    points=(REFINE,), probe=_PROBE,
)  # fmt: skip
REPLACEMENT = Kind(
    "shape_env.replacement", 5,
    "A symbol is replaced by an expression from now on; a number is a specialisation.",
    {"env": _ENV, "symbol": "its name", "expr": "what stands for it", "old": "what stood before",
     "reason": "torch's word for why: solve, find, range_refined_to_singleton, ..."},
    points=(REPLACE,), probe=_PROBE,
)  # fmt: skip
DIVISIBLE = Kind(
    "shape_env.divisible", 5, "A remainder is known to be zero.",
    {"env": _ENV, "expr": "the Mod"},
    points=_GUARDING, probe=_PROBE,
)  # fmt: skip
GUARD = Kind(
    "shape_env.guard", 5, "A guard was added.",
    {"env": _ENV, "expr": "what must hold", "size_oblivious": "asked for sizes other than 0 and 1",
     "location": "where torch says it comes from"},
    points=_GUARDING, probe=_PROBE,
)  # fmt: skip
SET = Kind(
    "shape_env.set", 5,
    "Other fields of a ShapeEnv changed: axioms, counters, freezing, pending symbols, ...",
    {"env": _ENV, "changes": "by field: `put` and `drop` entries, or `all` of it"},
    points=_CHANGING, probe=_PROBE,
)  # fmt: skip
UNBACKED = Kind(
    "unbacked.create", 6, "An unbacked symbol was created.",
    {"env": _ENV, "symbol": "its name", "assumptions": "SymPy's, `!` for not",
     "range": "lower and upper bound", "pending": "whether a binding must be found for it",
     },
    points=_UNBACKED, probe=_PROBE,
)  # fmt: skip
RENAME = Kind(
    "unbacked.rename", 6, "A symbol of a new trace was recognised as one of the trace before.",
    {"env": _ENV, "symbol": "the new one", "to": "the one that it is"},
    points=_RENAMING, probe=_PROBE,
)  # fmt: skip
SIZE_LIKE = Kind(
    "unbacked.size_like", 6, "A symbol counts as a size: at least 2 where that is asked.",
    {"env": _ENV, "symbol": "its name"},
    points=_SIZING, probe=_PROBE,
)  # fmt: skip
DEFER = Kind(
    "runtime_assert.defer", 7, "An assertion was left to the run of the compiled code.",
    {"env": _ENV, "symbol": "the last of its unbacked symbols; none where export keeps guards "
     "out of the signature", "expr": "what must hold", "message": "what a failure will say"},
    points=(ASSERT,), probe=_PROBE,
)  # fmt: skip
ITEM = Kind(
    "scalar.item", 8, "The value of a 0-d input tensor became a backed symbol.",
    {"env": _ENV, "symbol": "its name", "source": "the input's `item()`"},
    points=_CREATING, probe=_PROBE,
)  # fmt: skip
SPECIALIZE_ON = Kind(
    "shape_env.specialize_on", 5,
    "The program asks for a graph of its own where a condition on a size holds. The condition is "
    "its code, so the ShapeEnv rebuilt from the event log is without it.",
    {"env": _ENV, "source": "the size", "condition": "the function, by name and line"},
    points=_CREATING, probe=_PROBE,
)  # fmt: skip
STATE_KINDS = (
    CREATE, CALL, SYMBOL, DUCK, RANGE, REPLACEMENT, DIVISIBLE, GUARD, SET, UNBACKED, RENAME,
    SIZE_LIKE, DEFER, ITEM, SPECIALIZE_ON,
)  # fmt: skip

ZERO_ONE = Kind(
    "shape_env.zero_one", 5, "A dynamic size of 0 or 1 got no symbol: it is specialised.",
    {"env": _ENV, "source": "the size", "value": "0 or 1"},
    points=(NEW_SYMBOL,), probe=_PROBE,
)  # fmt: skip
PRODUCED = Kind(
    "shape_env.guards", 5, "The ShapeEnv's guards were turned into code.",
    {"env": _ENV, "guards": "for each language asked for, the expressions"},
    points=(PRODUCE,), probe=_PROBE,
)  # fmt: skip
CHECKPOINT = Kind(
    "shape_env.checkpoint", 5, "A checkpoint holds a snapshot of the ShapeEnv as it is here.",
    {"env": _ENV, "partition": "of the checkpoint", "ordinal": "of the checkpoint"},
    points=(BACKEND, INNER), probe=_PROBE,
)  # fmt: skip
BINDINGS = Kind(
    "unbacked.bindings", 6, "The fresh unbacked symbols of a value were found in it.",
    {"env": _ENV, "bindings": "by symbol, the path of keys to it", "peek": "only looked for"},
    points=COMPUTE_BINDINGS, probe="scalars",
)  # fmt: skip
REBIND = Kind(
    "unbacked.rebind", 6,
    "A node that binds unbacked symbols was traced again: its new symbols are the old ones. "
    "The name is the node's.",
    {"env": _ENV, "bindings": "by symbol of the trace before, the path of keys to it"},
    points=REBINDING, probe="scalars",
)  # fmt: skip
DATA_DEPENDENT = Kind(
    "unbacked.data_dependent_error", 6,
    "A decision depends on data: GuardOnDataDependentSymNode was made, which may be handled.",
    {"env": _ENV, "expr": "what was asked, with hints put in", "unhinted": "without them",
     "hints": "of the symbols that have one", "size_like": "those that count as sizes",
     "message": "torch's"}, pages=False, points=(ERROR,),
    probe=_PROBE,
)  # fmt: skip
KNOWN = Kind(
    "runtime_assert.known", 7, "An assertion was not deferred: its value is known.",
    {"env": _ENV, "expr": "what must hold", "message": "what a failure would say",
     "value": "whether it does"},
    points=(ASSERT,), probe=_PROBE,
)  # fmt: skip
INSERTED = Kind(
    "runtime_assert.insert", 7,
    "Deferred assertions were put into a graph, or redundant ones out of it. "
    "The name is the graph's.",
    {"env": _ENV, "added": "name, target and arguments of each new node",
     "removed": "names of nodes"},
    points=INSERTION, probe="scalars",
)  # fmt: skip
SCALAR = Kind(
    "scalar.symbolic", 8, "Dynamo made an int or float of the program symbolic, or a constant.",
    {"source": "where the program has it", "type": "int or float",
     "expr": "its symbol; none for a constant", "value": "of a constant"},
    points=(WRAP_INT, WRAP_FLOAT), probe="scalars",
)  # fmt: skip
TENSORIFIED = Kind(
    "scalar.tensorify", 8, "Arithmetic on symbolic floats was turned into arithmetic on tensors.",
    {"before": "expressions of the graph's symbolic floats", "after": "those left",
     "specialized": "symbols that the next attempt must treat as constants",
     "restart": "whether it asks for that attempt"},
    points=(TENSORIFY,), probe="scalars",
)  # fmt: skip
OTHER_KINDS = (
    ZERO_ONE, PRODUCED, CHECKPOINT, BINDINGS, REBIND, DATA_DEPENDENT, KNOWN, INSERTED, SCALAR,
    TENSORIFIED,
)  # fmt: skip
