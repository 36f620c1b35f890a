"""The functions of torch that events of ShapeEnvs, symbols and scalars come from.

Not here: who notes them (`shape_state`, `shape_env`, `scalars`).
"""

from __future__ import annotations

from torchreel.events.scalars import (
    DataDependentError,
    DeferredAssert,
    InsertedAsserts,
    KnownAssert,
    ScalarItem,
    SizeLike,
    SymbolicScalar,
    Tensorify,
    UnbackedBindings,
    UnbackedRebind,
    UnbackedRename,
    UnbackedSymbol,
)
from torchreel.events.shape_env import (
    BackedSymbol,
    Divisible,
    DuckSymbol,
    ProducedGuards,
    RangeUpdate,
    Replacement,
    ShapeEnvCall,
    ShapeEnvCheckpoint,
    ShapeEnvCreate,
    ShapeEnvSet,
    ShapeGuard,
    SpecializeOn,
    ZeroOne,
)
from torchreel.recorder.attach import Events
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

_BY_NAME = dict(zip(CALLS, CALL_POINTS, strict=True))
_CHANGING = (*CALL_POINTS, NEW_SYMBOL, ASSERT, REPLACE, REFINE)
_GUARDING = (_BY_NAME["_evaluate_expr"], ASSERT)
_CREATING = (NEW_SYMBOL, _BY_NAME["_create_symbolic_sizes_strides_storage_offset"])
_UNBACKED = tuple(point for name, point in _BY_NAME.items() if name.startswith("create_unbacked"))
_RENAMING = (_BY_NAME["_rename_unbacked_to"],)
_SIZING = (_BY_NAME["_constrain_range_for_size"], REPLACE)

EVENTS: Events = {
    ShapeEnvCreate: (INIT,),
    ShapeEnvCall: _CHANGING,
    BackedSymbol: _CREATING,
    DuckSymbol: _CREATING,
    RangeUpdate: (REFINE,),
    Replacement: (REPLACE,),
    Divisible: _GUARDING,
    ShapeGuard: _GUARDING,
    ShapeEnvSet: _CHANGING,
    UnbackedSymbol: _UNBACKED,
    UnbackedRename: _RENAMING,
    SizeLike: _SIZING,
    DeferredAssert: (ASSERT,),
    ScalarItem: _CREATING,
    SpecializeOn: _CREATING,
    ZeroOne: (NEW_SYMBOL,),
    ProducedGuards: (PRODUCE,),
    ShapeEnvCheckpoint: (BACKEND, INNER),
    UnbackedBindings: COMPUTE_BINDINGS,
    UnbackedRebind: REBINDING,
    DataDependentError: (ERROR,),
    KnownAssert: (ASSERT,),
    InsertedAsserts: INSERTION,
    SymbolicScalar: (WRAP_INT, WRAP_FLOAT),
    Tensorify: (TENSORIFY,),
}
