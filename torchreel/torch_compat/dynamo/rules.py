"""Dynamo's tables: sources, functions that go into a graph, polyfills, marked functions."""

from __future__ import annotations

import contextlib
import itertools
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch._guards
from torch._guards import Source


@cache
def source_classes() -> dict[str, type[Source]]:
    """Return every concrete Source that Dynamo defines, by class name."""
    import torch._dynamo.source as sources

    return {
        name: value
        for module in (sources, torch._guards)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Source) and value is not Source
    }


@cache
def in_graph_names() -> Mapping[str, str]:
    """Return Dynamo's table of functions by qualified name, with the name of their rule."""
    from torch._dynamo import trace_rules

    tables = (
        trace_rules.torch_c_binding_in_graph_functions,
        trace_rules.torch_non_c_binding_in_graph_functions,
        trace_rules.manual_torch_name_rule_map,
    )
    rows = itertools.chain.from_iterable(table.items() for table in tables)
    return {name: getattr(rule, "__name__", "") for name, rule in rows}


@cache
def graph_operators() -> frozenset[str]:
    """Return the functions of `operator` that Dynamo writes into graphs, or that symbolic numbers
    have.
    """
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch.fx.experimental.sym_node import magic_methods, method_to_operator

    found = [*BuiltinVariable._fx_graph_functions(), *map(method_to_operator, magic_methods)]
    return frozenset(f.__name__ for f in found if getattr(f, "__module__", "") == "_operator")


def nested_compile_region(function: Any) -> Any:
    """Return the function that `torch.compiler.nested_compile_region` was given; None for any
    other.
    """
    return getattr(function, "__marked_compile_region_fn__", None)


def read_rules_again() -> None:
    """Let Dynamo look up its rules for functions of torch again, which it has by their names.

    It does so once, when it first traces: what a program put under such a name before has the rule.
    """
    from torch._dynamo import trace_rules

    trace_rules.get_torch_obj_rule_map.cache_clear()


def has_rule(function: object) -> bool:
    """Return True if a function is looked up in Dynamo's rules for functions of torch.

    They are read once, by the names: what stands under such a name then has the rule.  Before that,
    who asks is about to read them.
    """
    from torch._dynamo import trace_rules

    known = trace_rules.get_torch_obj_rule_map
    return not known.cache_info().currsize or function in known()


_MARKS = (
    "_allowed_callable_ids", "_disallowed_callable_ids", "_nonstrict_trace_callable_ids",
    "_leaf_function_ids",
)  # fmt: skip
"""Sets of Dynamo's that functions are in by their id: allow_in_graph and the like."""


def dynamo_marks(function: object) -> tuple[str, ...]:
    """Return the names of Dynamo's sets that the program has put a function or class into."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    return tuple(name for name in _MARKS if id(function) in getattr(rules, name, ()))


def mark_for_dynamo(function: object, marks: Sequence[str]) -> None:
    """Put a function or class into sets of Dynamo's, for as long as it lives."""
    from torch._dynamo import trace_rules

    for name in marks:
        if name in _MARKS and hasattr(trace_rules, name):
            known = getattr(trace_rules, name)
            known.add(id(function))
            weakref.finalize(function, known.remove, id(function))


class Polyfill(NamedTuple):
    """A function in Python that Dynamo traces in place of another, often one of C."""

    original: Callable[..., Any]
    traced: Callable[..., Any]
    folds: bool
    """True if a call of constants is made instead of traced."""


def polyfills() -> list[Polyfill]:
    """Return the polyfills of this process, torch's own too (`substitute_in_graph`)."""
    home: Any = sys.modules.get("torch._dynamo.variables.functions")
    handlers = home.PolyfilledFunctionVariable._get_polyfill_handlers() if home else {}
    return [
        Polyfill(original, traced, bool(wrapper.__torch_dynamo_can_constant_fold_through__))
        for original, wrapper in list(handlers.items())
        if original is not wrapper
        and (traced := getattr(wrapper, "__torch_dynamo_polyfill__", None)) is not None
    ]


def register_polyfill(found: Polyfill) -> None:
    """Have Dynamo trace a function in place of another, unless it does so already."""
    with contextlib.suppress(ValueError):  # it is there: its library was imported
        torch.compiler.substitute_in_graph(
            found.original, can_constant_fold_through=found.folds, skip_signature_check=True
        )(found.traced)
