"""Real compiles for the tests of the formats: what reached a backend, as checkpoints."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch.fx import GraphModule

from torchreel.formats.checkpoints.document import CheckpointDoc, graph_checkpoint
from torchreel.formats.graphs.codec import encode_graph
from torchreel.formats.graphs.document import GraphDoc


@dataclass
class Seen:
    """A compile as the backend saw it; `env_equal` compares ShapeEnvs while they live."""

    checkpoints: list[CheckpointDoc] = field(default_factory=list)
    graphs: list[GraphDoc] = field(default_factory=list)
    readable: list[str] = field(default_factory=list)


def compile_and_see(
    fn: Callable[..., Any], *inputs: object, check: Callable[..., None] | None = None, **kwargs: Any
) -> Seen:
    """Compile and call `fn` with the backend 'eager', and keep what reached it."""
    torch._dynamo.reset()
    seen = Seen()

    def backend(gm: GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
        doc = graph_checkpoint(gm, example_inputs)
        seen.checkpoints.append(CheckpointDoc.from_bytes(doc.to_bytes()))
        seen.graphs.append(encode_graph(gm))
        seen.readable.append(gm.print_readable(print_output=False))
        if check is not None:
            check(gm, seen.checkpoints[-1])
        return gm.forward

    torch.compile(fn, backend=backend, **kwargs)(*inputs)
    assert seen.checkpoints, "nothing was compiled: the test would compare nothing"
    return seen
