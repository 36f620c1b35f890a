"""Triton kernels of the program's own: what a graph calls by a number only.

Lives here: the kernel behind the node of a `triton_kernel_wrapper`, with its source and what it is
called with.  Not here: the call itself (`subgraphs`), kernels that Inductor writes (`inductor`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torchreel.events.subgraphs import HopKernel
from torchreel.formats.triton_names import names_of, value_form
from torchreel.recorder.attach import AttachPoint, Events
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.probes.guards import describe

if TYPE_CHECKING:
    from torch.fx import Node

    from torchreel.recorder.recorder import Recorder

WRAPPERS = ("triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional")
_MODULE = "torch._higher_order_ops.triton_kernel_wrap"
TABLE = AttachPoint(_MODULE, "kernel_side_table", "the Triton kernels of the program, by number")
EVENTS: Events = {HopKernel: (TABLE,)}


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
        HopKernel(
            node=node.name,
            function=describe(kernel.fn),
            grid=[[_plain(size) for size in sizes] for sizes in given["grid"]],
            arguments=sorted(given["kwargs"]),
            constants={name: value_form(value) for name, value in sorted(constants.items())},
            configurations=[str(config) for config in getattr(tuner, "configs", ())],
            key=[str(name) for name in getattr(tuner, "keys", ())],
            # Their values are the program's, as are the numbers in the source.
            names={} if recorder.options.settings.redact == "all" else names_of(kernel),
        ),
        kernel.__name__,
        payload=kernel.src,
    )


def _plain(value: object) -> object:
    return value if value is None or type(value) in (bool, int, float, str) else str(value)
