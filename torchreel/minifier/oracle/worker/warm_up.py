"""Small compiles in the worker itself, so that no child has to pay for a first one.

Registering lowerings, decompositions and fusion patterns takes seconds, once in a process, and so
does preparing the headers of kernels. The graph has a matrix product and a sum: for its first
product Inductor reads all of Triton's source, where that is installed, and for its first sum SymPy
imports its tensors, which would take a child half a second. Nothing starts threads, which do not
survive a fork: the graph is compiled but not run, and torch has one thread meanwhile. Called by
`server` before it forks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.checkpoint import checkpoint

from torchreel.errors import MinifyError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.formats.shape_env.snapshots import encode_shape_env
from torchreel.minifier.cases.case import Case, trivial
from torchreel.minifier.oracle.child.runners import run_case
from torchreel.minifier.oracle.protocol import Task
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature
from torchreel.torch_compat.shapes import ShapeEnv


def compile_once(*, kernels: bool) -> None:
    """Compile a matrix product and a softmax; the C++ compiler is started only for `kernels`.

    Raises `MinifyError` if that fails.
    """
    nothing = Signature("exception", "lowering")
    ceiling = None if kernels else "lowering"
    with _one_thread():
        found = run_case(Task(_case(), nothing, 0.0, 0, ceiling), lambda position: None)
    if found.verdict != "none":
        raise MinifyError(f"A trivial graph does not compile here: {found.detail}")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch to one thread: a child waits for ever for threads that OpenMP started here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _case() -> Case:
    snapshot = encode_shape_env(ShapeEnv())
    empty = CheckpointDoc("graph", "", GraphDoc(()), (), snapshot, (), {}, {})
    case = trivial(Case.from_checkpoint(empty))
    (x, output) = case.graph.nodes
    outer = _call("outer", x, x)
    product = _call("mm", outer, outer)
    shares = NodeDoc("softmax", "call_function", "fn:torch.softmax", [{"n": "mm"}, -1])
    added = _call("add", shares, product)
    returned = NodeDoc("output", output.op, output.target, [{"t": [{"n": "add"}]}])
    return case.with_graph(GraphDoc((x, outer, product, shares, added, returned)))


def _call(name: str, *operands: NodeDoc) -> NodeDoc:
    args: list[Json] = [{"n": operand.name} for operand in operands]
    return NodeDoc(name, "call_function", f"fn:torch.{name}", args)


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(x)
        return result


def trace_once() -> None:
    """Let Dynamo trace a module, a loop and a checkpoint, with a dynamic size."""
    layer = _Layer()

    def program(x: torch.Tensor) -> object:
        for _ in range(2):
            x = layer(x)
        return checkpoint(torch.relu, x, use_reentrant=False)

    with torch.no_grad():
        torch.compile(program, backend="eager", dynamic=True)(torch.ones(1, 1))
    torch.compiler.reset()
