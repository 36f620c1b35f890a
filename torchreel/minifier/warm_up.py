"""One small compile in the worker itself, so that no child has to pay for what the first one costs.

Registering lowerings, decompositions and fusion patterns takes seconds, once in a process, and so
does preparing the headers of kernels. Nothing compiled is run: that could start threads, which do
not survive a fork. Called by `worker` before it forks.
"""

from __future__ import annotations

from torchreel.errors import MinifyError
from torchreel.minifier.case import Case, trivial
from torchreel.minifier.harness import run
from torchreel.minifier.protocol import Task
from torchreel.store.portable.checkpoints import CheckpointDoc
from torchreel.store.portable.graphs import GraphDoc, NodeDoc
from torchreel.store.portable.shape_env import encode_shape_env
from torchreel.store.portable.torch_names import ShapeEnv
from torchreel.store.signature import Signature


def compile_once(*, kernels: bool) -> None:
    """Compile `x -> relu(x) + x`; the C++ compiler is started only for `kernels`.

    Raises `MinifyError` if that fails.
    """
    nothing = Signature("exception", "lowering")
    ceiling = None if kernels else "lowering"
    found = run(Task(_case(), nothing, 0.0, 0, ceiling), lambda position: None)
    if found.verdict != "none":
        raise MinifyError(f"A trivial graph does not compile here: {found.detail}")


def _case() -> Case:
    snapshot = encode_shape_env(ShapeEnv())
    empty = CheckpointDoc("graph", "", GraphDoc(()), (), snapshot, (), {}, {})
    case = trivial(Case.from_checkpoint(empty))
    (x, output) = case.graph.nodes
    relu = NodeDoc("relu", "call_function", "fn:torch.relu", [{"n": "x"}])
    add = NodeDoc("add", "call_function", "fn:_operator.add", [{"n": "relu"}, {"n": "x"}])
    returned = NodeDoc("output", output.op, output.target, [{"t": [{"n": "add"}]}])
    return case.with_graph(GraphDoc((x, relu, add, returned)))
