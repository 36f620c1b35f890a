"""The counters by which torch numbers what a compile makes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from torch._guards import CompileId


def aot_counter() -> int:
    """Return the number that the next AOT graph will get (it appears in the output code)."""
    import torch._functorch.aot_autograd as aot

    return _peek(aot.AOT_COUNTER)


def set_aot_counter(value: int) -> None:
    """Make the next AOT graph get this number."""
    import torch._functorch.aot_autograd as aot

    aot.AOT_COUNTER = itertools.count(value)


def graph_counter() -> int:
    """Return the number that the next Inductor graph will get.

    Without importing Inductor, which takes seconds: a compile for another backend does not need it.
    """
    compile_fx = sys.modules.get("torch._inductor.compile_fx")
    return _peek(compile_fx._graph_counter) if compile_fx is not None else 0


def set_graph_counter(value: int) -> None:
    """Make the next Inductor graph get this number."""
    import torch._inductor.compile_fx as compile_fx

    compile_fx._graph_counter = itertools.count(value)


def checkpoint_counter() -> int:
    """Return the number that the next region of activation checkpointing will get."""
    import torch._higher_order_ops.wrap as wrap

    return _peek(wrap.uid)


def set_checkpoint_counter(value: int) -> None:
    """Make the next region of activation checkpointing get this number."""
    import torch._higher_order_ops.wrap as wrap

    wrap.uid = itertools.count(value)


def region_call_counter() -> int:
    """Return the number that the next call of a marked region will get in this thread (torch 2.13
    on).
    """
    return int(getattr(_region_calls(), "counter", 0))


def set_region_call_counter(value: int) -> None:
    """Make the next call of a marked region get this number in this thread."""
    if (calls := _region_calls()) is not None:
        calls.counter = value


def _region_calls() -> Any:
    """Return the state of a thread that `nested_compile_region` numbers its calls by."""
    regions = sys.modules.get("torch._higher_order_ops.invoke_subgraph")
    return getattr(regions, "_invoke_subgraph_call_state", None)


def _peek(counter: Iterable[int]) -> int:
    """Return the next number of an `itertools.count` without advancing it."""
    return int(counter.__reduce__()[1][0])


def graph_breaks() -> int:
    """Return the number of graph breaks in this process, which Inductor's metrics contain."""
    from torch._dynamo.utils import counters

    return counters["graph_break"].total()


def set_graph_breaks(count: int) -> None:
    """Let there have been that many graph breaks before."""
    from torch._dynamo.utils import counters

    counters["graph_break"].clear()
    counters["graph_break"]["before"] = count


def hook_counter() -> int:
    """Return the number that the next handle of a hook will get."""
    from torch.utils.hooks import RemovableHandle

    return RemovableHandle.next_id


def set_hook_counter(value: int) -> None:
    """Make the next handle of a hook get this number."""
    from torch.utils.hooks import RemovableHandle

    RemovableHandle.next_id = value


def frame_counters() -> dict[str, int]:
    """Return the state of the counters that number the objects of a compile."""
    from torch._dynamo import bytecode_transformation, output_graph

    return {
        "unique": _peek(bytecode_transformation._unique_id_counter),
        "output": _peek(output_graph._compile_id_counter),
        "aot": aot_counter() if "torch._functorch.aot_autograd" in sys.modules else 0,
        "graph": graph_counter(),
        "checkpoint": checkpoint_counter(),
        "graph_breaks": graph_breaks(),
        "hooks": hook_counter(),
    }


def set_frame_counters(counters: Mapping[str, int], compile_id: str | None) -> None:
    """Restore the counters of `frame_counters`; the next frame gets this `CompileId`."""
    from torch._dynamo import bytecode_transformation, convert_frame, output_graph

    bytecode_transformation._unique_id_counter = itertools.count(counters.get("unique", 0))
    if "output" in counters:
        output_graph._compile_id_counter = itertools.count(counters["output"])
    set_aot_counter(counters.get("aot", 0))
    if counters.get("graph") or "torch._inductor.compile_fx" in sys.modules:
        set_graph_counter(counters.get("graph", 0))
    if "checkpoint" in counters:
        set_checkpoint_counter(counters["checkpoint"])
    if "graph_breaks" in counters:
        set_graph_breaks(counters["graph_breaks"])
    if "hooks" in counters:
        set_hook_counter(counters["hooks"])
    found = None if compile_id is None else CompileId.from_string(compile_id)
    if found is not None and found.frame_id is not None and found.frame_compile_id is not None:
        convert_frame.FRAME_COUNTER = found.frame_id
        convert_frame.FRAME_COMPILE_COUNTER[found.frame_id] = found.frame_compile_id
