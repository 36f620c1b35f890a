"""Data that Dynamo keeps of a code object: resume functions, the modules that it traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CellType, CodeType, FrameType
from typing import Any

import torch
import torch._guards

from torchreel.torch_compat import fx


def resume_metadata(code: CodeType) -> object | None:
    """Return Dynamo's metadata of a function that resumes after a graph break; else None."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    found: object = ContinueExecutionCache.generated_code_metadata.get(code)
    return found


def resumed_call(code: CodeType, frame: FrameType | None) -> tuple[CodeType, FrameType] | None:
    """Return the function that `code` resumes after a graph break, and the frame of its call.

    That call is still under way: Dynamo's bytecode for the function calls the resume function.
    None if it is no resume function, or has no such frame.
    """
    from torch._dynamo.utils import orig_code_map

    original = getattr(resume_metadata(code), "code", None)
    while original is not None and frame is not None:
        if orig_code_map.get(frame.f_code) is original:
            return original, frame
        frame = frame.f_back
    return None


def traced_module(code: CodeType) -> dict[str, Any] | None:
    """Return the data that Dynamo copies from an FX module whose forward is `code`; else None.

    They are the metadata of the nodes, and the map of lines to nodes.
    """
    from torch._dynamo.code_context import code_context

    if not code_context.has_context(code):
        return None
    module = code_context.get_context(code).get("orig_graphmodule", lambda: None)()
    if not isinstance(module, torch.fx.GraphModule):
        return None
    return {"metas": fx.node_metas(module.graph), "lines": module._lineno_map}


def set_traced_module(code: CodeType, function: Any, found: Mapping[str, Any]) -> None:
    """Restore the data of `traced_module`."""
    from torch._dynamo.code_context import code_context

    module = torch.fx.GraphModule({}, fx.graph_with_metas(found["metas"]))
    module._lineno_map, module.forward = found["lines"], function
    code_context.get_context(code)["orig_graphmodule"] = lambda: module


def set_resume_metadata(code: CodeType, metadata: object) -> None:
    """Restore the metadata of `resume_metadata`."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    ContinueExecutionCache.generated_code_metadata[code] = metadata


_WRAPPER = ("torch/_dynamo/external_utils.py", "inner", "fn")
"""File, name and free variable of the frame that Dynamo puts around a function of a file that it
skips: `forward` of a module of torch's own, as `torch.nn.Sequential`.
"""


def wrapped_name(code: CodeType, closure: Sequence[CellType] | None) -> str:
    """Return the name of the function in such a frame; '' for any other frame."""
    file, name, variable = _WRAPPER
    if code.co_name != name or variable not in code.co_freevars or not closure:
        return ""
    if not code.co_filename.replace("\\", "/").endswith(file):
        return ""
    found = closure[code.co_freevars.index(variable)].cell_contents
    around = getattr(found, "__self__", found)
    if isinstance(around, torch.nn.Module):
        return f"{type(around).__name__}.forward"
    return str(getattr(found, "__qualname__", ""))
