"""The private names of torch that the probes of ShapeEnvs, symbols, asserts and scalars need.

Lives here: attach points.  Not here: what is done there (`shape_env`, `scalars`).
"""

from __future__ import annotations

from torchreel.recorder.attach import AttachPoint

_MODULE = "torch.fx.experimental.symbolic_shapes"
CALLS = (
    "_create_symbolic_sizes_strides_storage_offset", "transfer_symbols_from_foreign_shape_env",
    "create_unspecified_symint_and_symbol", "create_unspecified_symbol",
    "create_unbacked_symint", "create_unbacked_symfloat", "create_unbacked_symbool",
    "add_backed_var_to_val", "_add_shape_id_eq_check", "_record_exclusion_constraint",
    "_rename_unbacked_to", "_eliminate_unbacked", "set_real_tensor_prop_unbacked_vals",
    "_constrain_range_for_size", "_constrain_range", "_constrain_unify", "constrain_symbol_range",
    "freeze", "freeze_runtime_asserts", "_evaluate_expr",
)  # fmt: skip
"""Methods that change the state.  `evaluate_expr` is called tens of thousands of times and answers
from a cache; `_evaluate_expr` is what it comes to when it does not."""


_SINCE = {"transfer_symbols_from_foreign_shape_env": "2.13", "_add_shape_id_eq_check": "2.13"}


def _point(method: str, why: str) -> AttachPoint:
    return AttachPoint(_MODULE, f"ShapeEnv.{method}", why, since=_SINCE.get(method, ""))


INIT = _point("__init__", "a new ShapeEnv, with its settings")
NEW_SYMBOL = _point("create_symbol", "symbols, and sizes of 0 and 1 that get none")
ASSERT = _point("guard_or_defer_runtime_assert", "assertions, deferred or known")
REPLACE = _point("_set_replacement", "replacements, with torch's reason")
REFINE = _point("_update_var_to_range", "ranges")
ERROR = _point("_make_data_dependent_error", "decisions that depend on data")
PRODUCE = _point("produce_guards_verbose", "the guards as code")
CALL_POINTS = tuple(_point(method, "changes the state") for method in CALLS)


def _points(name: str, why: str, *modules: str) -> tuple[AttachPoint, ...]:
    return tuple(AttachPoint(module, name, why) for module in modules)


COMPUTE_BINDINGS = _points(
    "compute_unbacked_bindings", "where fresh unbacked symbols are found in a value",
    _MODULE, "torch._export.pass_base", "torch._inductor.fx_passes.reinplace",
    "torch._inductor.fx_utils", "torch._inductor.ir",
)  # fmt: skip
REBINDING = _points(
    "rebind_unbacked", "a node is traced again: old symbols and new ones",
    _MODULE, "torch._inductor.fx_utils", "torch._inductor.ir",
)  # fmt: skip
INSERTION = _points(
    "insert_deferred_runtime_asserts", "deferred asserts become nodes",
    "torch.fx.passes.runtime_assert", "torch._dynamo.output_graph",
    "torch.export.exported_program", "torch._export.utils",
    "torch._higher_order_ops.invoke_subgraph", "torch._higher_order_ops.utils",
)  # fmt: skip
TENSORIFY = AttachPoint(
    "torch._functorch._aot_autograd.graph_compile", "tensorify_python_scalars",
    "symbolic floats become tensors",
)  # fmt: skip
_BUILDER = "torch._dynamo.variables.builder"
WRAP_INT = AttachPoint(_BUILDER, "VariableBuilder.wrap_symint", "ints of the program")
WRAP_FLOAT = AttachPoint(_BUILDER, "VariableBuilder.wrap_symfloat", "floats of the program")
