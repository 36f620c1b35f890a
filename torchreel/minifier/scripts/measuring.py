"""The lines with which a repro measures the quantities of a predicate and tests it.

Not here: how the search measures (`oracle.child.measures`). A predicate that holds is an
AssertionError, so that the exit status is 1 while the compile is what was looked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.minifier.oracle.predicates import Predicate

HOLDS = "the predicate holds: "
"""The beginning of the error's message."""

# By quantity: lines before the call, and lines after it.
_Lines = tuple[list[str], list[str]]
_CLOCK: _Lines = (
    ["began = time.perf_counter()"],
    ["compile_seconds = time.perf_counter() - began"],
)
_PROCESSOR: _Lines = (
    ["before = sum(os.times()[:4])"],
    ["cpu_seconds = sum(os.times()[:4]) - before"],
)
_MEMORY: _Lines = (
    ["resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss"],
    ["memory = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident)"],
)
_CALLS: _Lines = (
    ["profile = cProfile.Profile(builtins=False)", "profile.enable()"],
    ["profile.disable()", "python_calls = sum(e.callcount for e in profile.getstats())"],
)
_CODE: _Lines = (
    ["sources = []", "GraphLowering.save_output_code = sources.append"],
    ['code = "\\n".join(sources)', "code_lines = len(code.splitlines())"],
)
_KERNELS: _Lines = (
    ["metrics.reset()"],
    ["kernels = metrics.generated_kernel_count"],
)
_GUARDS: _Lines = (
    ["envs = []", "made = ShapeEnv.__init__",
     "ShapeEnv.__init__ = lambda self, *a, **k: (made(self, *a, **k), envs.append(self))[0]"],
    ["guards = max(len(env.guards) for env in envs)"],
)  # fmt: skip
_WARNINGS: _Lines = (
    ["texts = []", "kept = lambda self, record: texts.append(record.getMessage())",
     "logging.Logger.handle = lambda self, r: kept(self, r) if r.levelno >= logging.WARNING else 0",
     "warnings.showwarning = lambda message, *a, **k: texts.append(str(message))",
     'warnings.simplefilter("always")'],
    ['warnings, warning = len(texts), "\\n".join(texts)'],
)  # fmt: skip
_RECOMPILES: _Lines = ([], ['recompiles = counters["stats"]["unique_graphs"] - 1'])
_LINES = {
    "recompiles": _RECOMPILES,
    "compile_seconds": _CLOCK,
    "cpu_seconds": _PROCESSOR,
    "memory": _MEMORY,
    "python_calls": _CALLS,
    "code": _CODE,
    "code_lines": _CODE,
    "kernels": _KERNELS,
    "guards": _GUARDS,
    "warnings": _WARNINGS,
    "warning": _WARNINGS,
}
IMPORTS = {
    "GraphLowering": "from torch._inductor.graph import GraphLowering",
    "ShapeEnv": "from torch.fx.experimental.symbolic_shapes import ShapeEnv",
    "metrics": "from torch._inductor import metrics",
    "counters": "from torch._dynamo.utils import counters",
}
"""The import that the lines need, by name."""
MODULES = ("time", "os", "cProfile", "logging", "warnings", "re")


def measuring_lines(predicate: Predicate, lines: Sequence[str]) -> list[str]:
    """Return lines with the measurements around them, and an error if the predicate holds."""
    parts: list[_Lines] = []
    for name in sorted(predicate.names()):
        if name in _LINES and _LINES[name] not in parts:
            parts.append(_LINES[name])
    before = [line for part in parts for line in part[0]]
    after = [line for part in reversed(parts) for line in part[1]]
    shown = [name for name in sorted(predicate.names()) if name not in ("code", "warning")]
    printed = [f"print({', '.join(f'{name!r}, {name}' for name in shown)})"] if shown else []
    return [
        *before,
        *lines,
        *after,
        *printed,
        f"if {predicate.spelled()}:",
        f"    raise AssertionError({HOLDS + str(predicate)!r})",
    ]


def recompiling_lines(arguments: str, inputs: Sequence[str]) -> list[str]:
    """Return lines that call the function with each of these inputs that eager accepts."""
    return [
        f"compiled = torch.compile({arguments})",
        f"for inputs in ({', '.join(inputs)},):",
        "    try:",
        "        fn(*inputs())",
        "    except Exception:",
        "        continue  # eager does not take these sizes",
        "    compiled(*inputs())",
    ]
