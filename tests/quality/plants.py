"""Bugs planted into torch's pipeline, each with a condition of its own.

Imported by the worker (as a user's module would be, with --import) and by nobody else in a way that
matters. A backend looks at Dynamo's graph; a lowering, a decomposition and a pass of Inductor are
replaced at their places in torch, and fail on operators that the other tests do not use.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._dynamo import register_backend
from torch.fx import GraphModule, Node

Rule = Callable[[GraphModule], bool]


def graphs(gm: GraphModule) -> Iterator[GraphModule]:
    """A graph and the bodies that it calls, and theirs."""
    yield gm
    for node in gm.graph.find_nodes(op="get_attr"):
        inner = getattr(gm, str(node.target), None)
        if isinstance(inner, GraphModule) and node.users:
            yield from graphs(inner)


def nodes(gm: GraphModule) -> Iterator[Node]:
    """The calls of a graph, and of the bodies in it."""
    for graph in graphs(gm):
        yield from (node for node in graph.graph.nodes if node.op.startswith("call_"))


def name(node: Node) -> str:
    """'sin' of the function, the method and the operator."""
    if isinstance(node.target, str):
        return node.target
    found = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", "")
    return str(found)


def named(gm: GraphModule, wanted: str) -> list[Node]:
    """The calls of that name, in bodies as well."""
    return [node for node in nodes(gm) if name(node) == wanted]


def value(node: Node) -> Any:
    """What Dynamo or the worker computed for a node."""
    return node.meta.get("example_value", node.meta.get("val"))


def flows(gm: GraphModule, *path: str) -> bool:
    """Whether a value of the first flows into a call of the second, and so on."""
    steps: dict[Node, int] = {}
    for node in gm.graph.nodes:
        done = max((steps.get(operand, 0) for operand in node.all_input_nodes), default=0)
        here = node.op.startswith("call_") and done < len(path) and name(node) == path[done]
        steps[node] = done + here
    return any(done == len(path) for done in steps.values())


def flows_anywhere(gm: GraphModule, *path: str) -> bool:
    """The same within the graph or one of its bodies."""
    return any(flows(graph, *path) for graph in graphs(gm))


def body_has(gm: GraphModule, operator: str, *inside: str) -> bool:
    """Whether a call of a higher-order operator has a body with all these calls."""
    for graph in graphs(gm):
        for node in graph.graph.nodes:
            if node.op.startswith("call_") and name(node) == operator:
                bodies = [
                    getattr(graph, str(arg.target))
                    for arg in node.all_input_nodes
                    if arg.op == "get_attr"
                ]
                for body in bodies:
                    if isinstance(body, GraphModule) and all(named(body, n) for n in inside):
                        return True
    return False


Backend = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


def raising(label: str, rule: Rule, error: type[Exception]) -> Backend:
    """A backend that raises on graphs for which the rule holds."""

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if rule(gm):
            raise error(f"planted: {label.replace('_', ' ')}")
        return gm.forward

    return backend


def acting(rule: Rule, act: Callable[[], object]) -> Backend:
    """A backend that does something to the process instead."""

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if rule(gm):
            act()
        return gm.forward

    return backend


def running(rule: Rule, instead: Callable[[GraphModule, Sequence[Any]], Any]) -> Backend:
    """A backend whose code does something else than the graph when it is run."""

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if not rule(gm):
            return gm.forward
        return lambda *args: instead(gm, args)

    return backend


def segfault() -> None:
    """As a bug in the compiler's C++ would."""
    os.kill(os.getpid(), signal.SIGSEGV)


def fail_at_run(gm: GraphModule, args: Sequence[Any]) -> Any:
    """As a size assertion of compiled code would."""
    raise AssertionError("planted: expected size 4==8")


def one_more(gm: GraphModule, args: Sequence[Any]) -> Any:
    """A wrong result: one more than the right one."""
    return tuple(v + 1 if isinstance(v, torch.Tensor) else v for v in gm(*args))


def plant(label: str, backend: Backend) -> None:
    """Register a backend for a program."""
    register_backend(backend, name=f"plant_{label}")  # type: ignore[call-arg]
