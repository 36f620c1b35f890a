"""Backends: what is called with the graph, how that ends, and what becomes of a failure.

Lives here: every backend, whatever callable it is, the
fallback to eager after a fake tensor's exception, `verify_correctness`.  Not here: the graph that
is handed over (`dynamo`), what happens inside of a backend (`aot`, `inductor`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torchreel.events.backends import BackendCall, BackendReturn, BackendVerify
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Visit
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

EVENTS: Events = {
    BackendCall: (BACKEND,),
    BackendReturn: (BACKEND,),
    BackendVerify: (VERIFY,),
}


def _call(recorder: Recorder, call: Call) -> Visit:
    output, gm, inputs = call.args[0], call.argument(1, "gm"), call.argument(2, "example_inputs")
    nondeterminism.note_machine(recorder, inputs)
    here = recorder.spans.here
    outer = here.cause
    function, name = _innermost(output.compiler_fn), backend_name(output.compiler_fn)
    here.cause = recorder.note(
        BackendCall(
            function=_qualified(function),
            options=_options(output),
            nodes=len(gm.graph.nodes),
            inputs=len(inputs),
        ),
        name,
    )
    outcome = yield
    recorder.note(_return(outcome.result, outcome.error), name)
    here.cause = outer


def _innermost(backend: Any) -> Any:
    """Return the callable that the user or the registry gave, without torch's wrappers around
    it.
    """
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


def _return(result: Any, error: BaseException | None) -> BackendReturn:
    if error is None:
        return BackendReturn("ok", exception=None, message=None, result=_qualified(result))
    exc = sys.modules[_EXC]
    if isinstance(error, exc.SkipFrame):
        return _raised("skip", error)
    if isinstance(error, exc.RestartAnalysis):
        return _raised("restart", error)
    if isinstance(error, exc.Unsupported):
        return _raised("fallback", error.__cause__ or error.__context__ or error)
    inner = getattr(error, "inner_exception", None)
    return _raised("failed", inner if isinstance(inner, BaseException) else error)


def _raised(outcome: str, error: BaseException) -> BackendReturn:
    return BackendReturn(outcome, type(error).__name__, str(error), result=None)


_DIFFERENT = "incorrect results of backend"
"""Beginning of torch's message (WrapperBackend.__call__)."""


def _verify(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    error = outcome.error
    name = backend_name(call.args[0].backend)
    if error is not None:
        different = str(error).startswith(_DIFFERENT)
        recorder.note(
            BackendVerify("different" if different else "failed", type(error).__name__), name
        )
    else:
        compared = outcome.result is getattr(call.args[0], "candidate", None)
        recorder.note(BackendVerify("same" if compared else "not compared", None), name)


PROBES = (Probe(BACKEND, _call), Probe(VERIFY, _verify))
