"""torch's own backends that are in no registry: they count, explain or keep graphs.

Lives here: which there are, and how one is made again from its recorded name.  Not here: registered
backends, and those of a program, which are code.  Called by the recorder, replay and minifier.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torchreel.patterns import lazy_text
from torchreel.torch_compat.versions import names
from torchreel.torch_compat.versions.names import TorchName

_TESTING, _DEBUGGING = "torch._dynamo.testing", "torch._dynamo.backends.debugging"

_PLAIN = {
    f"{_TESTING}:{name}": TorchName(_TESTING, name, "a backend that a recording may name")
    for name in (
        "CompileCounter",
        "EagerAndRecordGraphs",
        "AotEagerAndRecordGraphs",
        "InductorAndRecordGraphs",
    )
}
"""Classes that are made without arguments."""

_AROUND = {
    f"{name.module}:{name.qualname}": name
    for name in (
        TorchName(_TESTING, "CompileCounterWithBackend", "counts what another backend compiles"),
        TorchName(_DEBUGGING, "ExplainWithBackend", "explains what another backend compiles"),
    )
}
"""Classes that are made with the name of the backend that they call (`backend`)."""

_MODES = TorchName(
    _DEBUGGING, "make_eager_backend_with_torch_function_modes",
    "the backend of a higher-order operator that is called outside of torch.compile",
)  # fmt: skip
_WITH_MODES = f"{_MODES.module}:{_MODES.qualname}.<locals>.fn"

_CAPTURING = "torch._dynamo.convert_frame:_fullgraph_capture_frame.<locals>.fullgraph_compiler"
"""The backend that `torch.export` and `aot_compile` give to Dynamo: they compile after it."""

_WITH_INNER = lazy_text(r"(?P<outer>[^()]+)\((?P<inner>[^()]+)\)")


def calls_another(name: str) -> bool:
    """Return True for a backend of torch whose `backend` compiles: its name is recorded as well."""
    return name in _AROUND


def make(name: str, lookup: Callable[[str], Any]) -> Any:
    """Return the backend of a recorded name, or None if it is not one of these.

    `lookup` gives the backend that such a one calls; what it raises is raised.
    """
    found = _WITH_INNER.fullmatch(name)
    if found is not None and found["outer"] in _AROUND:
        inner = lookup(found["inner"])
        return _resolved(_AROUND[found["outer"]])(inner)
    if name in _PLAIN:
        return _resolved(_PLAIN[name])()
    if name == _CAPTURING:
        return _as_it_is
    # The modes are entered when the compiled graph runs: it compiles the same without them.
    return _resolved(_MODES)([]) if name == _WITH_MODES else None


def _as_it_is(graph: Any, inputs: Any) -> Any:
    return graph


def _resolved(name: TorchName) -> Any:
    importlib.import_module(name.module)
    owner, attribute = names.resolve(name)
    return getattr(owner, attribute)
