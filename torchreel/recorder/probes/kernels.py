"""Triton kernels of the program's own: what a graph calls by a number only.

Lives here: the kernel behind the node of a `triton_kernel_wrapper`, with its source and what it is
called with.  Not here: the call itself (`subgraphs`), kernels that Inductor writes (`inductor`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torchreel.recorder.attach import AttachPoint
from torchreel.recorder.guard import fail_open
from torchreel.recorder.kinds import Kind
from torchreel.recorder.probes.guards import describe

if TYPE_CHECKING:
    from torch.fx import Node

    from torchreel.recorder.recorder import Recorder

WRAPPERS = ("triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional")
_MODULE = "torch._higher_order_ops.triton_kernel_wrap"
TABLE = AttachPoint(_MODULE, "kernel_side_table", "the Triton kernels of the program, by number")

KERNEL = Kind(
    name="hop.kernel",
    system=11,
    meaning="The Triton kernel that a call in Dynamo's graph stands for; the name is the kernel's, "
    "the payload its source.",
    fields={
        "node": "name of the node that calls it",
        "function": "its Python function, by name and line",
        "grid": "how many programs run, for each configuration: numbers and names of nodes",
        "arguments": "names of the arguments that nodes are given for",
        "constants": "the other arguments, by name",
        "configurations": "what @triton.autotune chooses from; empty without it",
    },
    points=(TABLE,),
    probe="subgraphs",
)


def note_kernel(recorder: Recorder, node: Node) -> None:
    """Note the kernel of a node that calls one of `WRAPPERS`; one that is none is lost alone."""
    with fail_open("triton kernel"):
        _note(recorder, node)


def _note(recorder: Recorder, node: Node) -> None:
    table = sys.modules[_MODULE].kernel_side_table
    given: Any = node.kwargs
    tuner = kernel = table.get_kernel(given["kernel_idx"])
    while hasattr(kernel, "configs") or not hasattr(kernel, "src"):
        kernel = kernel.fn  # @triton.autotune and @triton.heuristics stand around it
    constants = table.get_constant_args(given["constant_args_idx"])
    recorder.note(
        KERNEL,
        kernel.__name__,
        node.name,
        describe(kernel.fn),
        [[_plain(size) for size in sizes] for sizes in given["grid"]],
        sorted(given["kwargs"]),
        {name: _plain(value) for name, value in sorted(constants.items())},
        [str(config) for config in getattr(tuner, "configs", ())],
        payload=kernel.src,
    )


def _plain(value: object) -> object:
    return value if value is None or type(value) in (bool, int, float, str) else str(value)
