"""Backends: what is called with the graph, how that ends, and what becomes of a failure.

Row 18 of the design's table of systems.  Lives here: every backend, whatever callable it is, the
fallback to eager after a fake tensor's exception, `verify_correctness`.  Not here: the graph that
is handed over (`dynamo`), what happens inside of a backend (`aot`, `inductor`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torchreel.recorder.attach import AttachPoint, Call, Probe, Visit
from torchreel.recorder.kinds import Kind
from torchreel.recorder.probes import nondeterminism
from torchreel.recorder.probes.dynamo import backend_name
from torchreel.recorder.probes.nondeterminism import BACKEND

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

_EXC = "torch._dynamo.exc"
VERIFY = AttachPoint(
    "torch._dynamo.output_graph",
    "WrapperBackend.__call__",
    "compares a backend's result with eager's (config.verify_correctness)",
)
ATTACH_POINTS = (BACKEND, VERIFY)

CALLED = Kind(
    name="backend.call",
    system=18,
    meaning="A backend is called with a graph; what happens meanwhile is a part of this.",
    fields={
        "function": "what is called, by its qualified name",
        "options": "what it was asked for with (mode, options, dynamic)",
        "nodes": "how many nodes the graph has",
        "inputs": "how many inputs",
    },
    points=(BACKEND,),
    pages=False,
    probe="backends",
)
RETURNED = Kind(
    name="backend.return",
    system=18,
    meaning="A backend is done.",
    fields={
        "outcome": "ok, failed, skip (the frame stays eager), restart (Dynamo tries again) or "
        "fallback (the graph runs in eager mode, because of an exception that allows it)",
        "exception": "the type of what the backend raised",
        "message": "of what the backend raised",
        "result": "what it returned, by its qualified name or type",
    },
    points=(BACKEND,),
    pages=False,
    probe="backends",
)
VERIFIED = Kind(
    name="backend.verify",
    system=18,
    meaning="A backend's result was compared with eager's.",
    fields={
        "outcome": "same, different, not compared (the backend gave nothing back to compare) or "
        "failed (an exception on the way)",
        "exception": "its type",
    },
    points=(VERIFY,),
    pages=False,
    probe="backends",
)
KINDS = (CALLED, RETURNED, VERIFIED)


def _call(recorder: Recorder, call: Call) -> Visit:
    output, gm, inputs = call.args[0], call.argument(1, "gm"), call.argument(2, "example_inputs")
    nondeterminism.note_machine(recorder, inputs)
    here = recorder.spans.here
    outer = here.cause
    function, name = _innermost(output.compiler_fn), backend_name(output.compiler_fn)
    here.cause = recorder.note(
        CALLED, name, _qualified(function), _options(output), len(gm.graph.nodes), len(inputs)
    )
    outcome = yield
    recorder.note(RETURNED, name, *_ended(outcome.result, outcome.error))
    here.cause = outer


def _innermost(backend: Any) -> Any:
    """The callable that the user or the registry gave, without torch's wrappers around it."""
    for attribute in ("_torchdynamo_orig_backend", "compiler_fn") * 5:
        backend = getattr(backend, attribute, None) or backend
    return backend


def _qualified(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def _options(output: Any) -> dict[str, object]:
    """Return the arguments of `torch.compile` besides the backend, if they are built-in values."""
    found: dict[str, object] = {}
    backend = output.compiler_fn
    for _ in range(5):
        for name in ("config", "kwargs"):
            options = getattr(backend, name, None)
            if isinstance(options, dict):
                found |= {str(key): _plain(value) for key, value in options.items()}
        for name in ("mode", "dynamic"):
            value = getattr(backend, name, None)
            if isinstance(value, (str, bool)):
                found[name] = value
        inner = getattr(backend, "_torchdynamo_orig_backend", None)
        if inner is None:
            return found
        backend = inner
    return found


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return type(value).__name__


def _ended(result: Any, error: BaseException | None) -> tuple[object, ...]:
    if error is None:
        return "ok", None, None, _qualified(result)
    exc = sys.modules[_EXC]
    if isinstance(error, exc.SkipFrame):
        return "skip", type(error).__name__, str(error), None
    if isinstance(error, exc.RestartAnalysis):
        return "restart", type(error).__name__, str(error), None
    if isinstance(error, exc.Unsupported):
        return ("fallback", *_original(error.__cause__ or error.__context__ or error), None)
    inner = getattr(error, "inner_exception", None)
    return ("failed", *_original(inner if isinstance(inner, BaseException) else error), None)


def _original(error: BaseException) -> tuple[str, str]:
    return type(error).__name__, str(error)


_DIFFERENT = "incorrect results of backend"
"""Beginning of torch's message (WrapperBackend.__call__)."""


def _verify(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    error = outcome.error
    name = backend_name(call.args[0].backend)
    if error is not None:
        different = str(error).startswith(_DIFFERENT)
        recorder.note(VERIFIED, name, "different" if different else "failed", type(error).__name__)
    else:
        compared = outcome.result is getattr(call.args[0], "candidate", None)
        recorder.note(VERIFIED, name, "same" if compared else "not compared", None)


PROBES = (Probe(BACKEND, _call), Probe(VERIFY, _verify))
