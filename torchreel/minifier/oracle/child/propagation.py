"""Fake values for each node of a graph.

Called in the worker's processes alone.  To support another torch, this file changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings


class Propagation(Interpreter):
    """Runs a graph on fake values and writes each node's value into its meta.

    Unlike FX's FakeTensorProp it keeps the values that Dynamo calls `example_value`, and lets the
    caller say what becomes of a higher-order operator that can't run on fakes outside of a trace.
    """

    def __init__(self, graph: GraphModule, mode: FakeTensorMode, key: str) -> None:
        super().__init__(graph)
        self._mode, self._key = mode, key

    def run_node(self, n: Node) -> Any:
        """Return the node's fake value."""
        result = super().run_node(n)
        if n.op == "output":
            return result
        n.meta[self._key] = result
        env = self._mode.shape_env
        bindings = compute_unbacked_bindings(env, result) if n.op != "placeholder" else None
        if bindings:
            n.meta["unbacked_bindings"] = bindings
        return result

    def fetch_attr(self, target: str) -> Any:
        """Return a constant as a fake tensor; nested graphs stay as they are."""
        value = super().fetch_attr(target)
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return self._mode.from_tensor(value, static_shapes=True)
        return value

    def propagate(self, inputs: Sequence[object]) -> None:
        """Run it on fake inputs."""
        with self._mode:
            self.run(*inputs)
