"""The settings around a repro: config entries, ambient state, arguments of `torch.compile`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import is_dotted, literal
from torchreel.formats.checkpoints import config
from torchreel.formats.graphs.document import GraphDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import symbols_of
from torchreel.replay.accuracy import comparators
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object
from torchreel.torch_compat import configs

_UNBACKED = re.compile(r"u\d+")
# Without these Dynamo would not put the operators that make unbacked symbols into a graph.
_CAPTURE = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")


def config_lines(case: Case) -> list[str]:
    """Return one assignment per config entry that is not the default and may be restored."""
    kept, _ = config.writable(case.checkpoint.config)
    modules = configs.config_modules()
    lines = []
    for entry in map(as_object, kept):
        module = modules.get(str(entry["module"]))
        if module is not None and entry["key"] in configs.config_keys(module):
            value = spelling.constant(entry["value"])
            lines.append(f"{module.__name__}.{entry['key']} = {value}")
    return [*lines, *_capture_lines(case, lines)]


def _capture_lines(case: Case, known: list[str]) -> list[str]:
    if not _has_unbacked(case.graph):
        return []
    lines = [f"torch._dynamo.config.{name} = True" for name in _CAPTURE]
    return [line for line in lines if line not in known]


def _has_unbacked(graph: GraphDoc) -> bool:
    return any(_UNBACKED.fullmatch(name) for node in graph.nodes for name in symbols_of(node.value))


def left_out(case: Case) -> list[str]:
    """Return the config entries and options of a case that no script holds: they name code or
    paths.
    """
    entries = [*case.checkpoint.config, *as_list(case.checkpoint.extra.get("options"))]
    return config.writable(entries)[1]


def ambient_lines(case: Case) -> list[str]:
    """Return one call for each ambient setting that differs from that of a new process."""
    state = case.checkpoint.ambient
    lines = []
    if (dtype := _leaf(state, "default_dtype", "dtype")) not in (None, "float32"):
        lines.append(f"torch.set_default_dtype({spelling.constant({'dtype': dtype})})")
    if state.get("float32_matmul_precision") in ("high", "medium"):
        lines.append(f'torch.set_float32_matmul_precision("{state["float32_matmul_precision"]}")')
    deterministic = as_list(state.get("deterministic"))
    if deterministic and deterministic[0] is True:
        only = ", warn_only=True" if deterministic[1:] == [True] else ""
        lines.append(f"torch.use_deterministic_algorithms(True{only})")
    if state.get("mkldnn") is False:
        lines.append("torch.backends.mkldnn.set_flags(False)")
    return lines


def contexts(case: Case) -> list[str]:
    """Return the `with` items under which the compile happened."""
    state = case.checkpoint.ambient
    found = []
    if state.get("inference_mode") is True:
        found.append("torch.inference_mode()")
    elif state.get("grad_enabled") is False and case.checkpoint.entry == "graph":
        found.append("torch.no_grad()")  # inside of AOTAutograd it is always off
    if state.get("dispatch_below") == "autograd":  # as inside of a custom operator
        found.append("torch._C._AutoDispatchBelowAutograd()")
    for device in ("cpu", "cuda"):
        enabled, dtype = (*as_list(state.get(f"autocast_{device}")), None, None)[:2]
        if enabled is True and isinstance(dtype, Mapping):
            found.append(f'torch.autocast("{device}", dtype={spelling.constant(dtype)})')
    return found


def _leaf(state: Mapping[str, Json], key: str, tag: str) -> Json:
    return as_object(state.get(key)).get(tag)


def backend(case: Case) -> str:
    """Return a backend as an expression: a name of torch's own, or a function of an imported
    module.

    Raises `UnsupportedError` for one that is code which nobody named.
    """
    module, colon, qualname = case.backend.partition(":")
    if not colon and is_dotted(module):
        return literal(module)
    # A program that was run as a script recorded its own name as __main__.
    known = case.imports[:1] if module == "__main__" else (module,) * (module in case.imports)
    if not known or not is_dotted(qualname):
        raise UnsupportedError(
            f"the backend {case.backend!r:.80} is code: name the module that defines it "
            "with --import MODULE"
        )
    return f"{known[0]}.{qualname}"


def is_code(case: Case) -> bool:
    """Return True if the backend is code of the program's, and no module that defines it was named.

    Then no script can name it either.
    """
    try:
        backend(case)
    except UnsupportedError:
        return True
    return False


def compile_arguments(case: Case) -> list[str]:
    """Return the keyword arguments of `torch.compile`, beside `fullgraph=True`."""
    found = []
    if case.backend != "inductor":
        found.append(f"backend={backend(case)}")
    kept, _ = config.writable(as_list(case.checkpoint.extra.get("options")))
    pairs: list[Json] = [[as_object(e)["key"], as_object(e)["value"]] for e in kept]
    if pairs:
        found.append(f"options={spelling.constant({'d': pairs})}")
    if dynamic_dims(case) and all_dynamic(case):
        found.append("dynamic=True")
    return found


def dynamic_dims(case: Case) -> dict[int, list[int]]:
    """Return the dimensions of symbolic size, by the position of the input."""
    found = {}
    for position, value in enumerate(case.checkpoint.inputs):
        sizes = as_list(as_object(value).get("size"))
        dims = [dim for dim, size in enumerate(sizes) if isinstance(size, str)]
        if dims:
            found[position] = dims
    return found


def all_dynamic(case: Case) -> bool:
    """Return True if every size that could be dynamic is (0 and 1 never are)."""
    sizes = [
        size for value in case.checkpoint.inputs for size in as_list(as_object(value).get("size"))
    ]
    return all(isinstance(size, str) or size in (0, 1) for size in sizes)


def users_comparator(case: Case) -> str:
    """Return the function that compares as an expression; empty for a comparator of torchreel's.

    Raises `UnsupportedError` where nobody imported its module.
    """
    if not comparators.comparator(case.comparator).is_users:
        return ""
    return ".".join(comparators.users_function(case.comparator, case.imports))


# As in `comparison`, by the least exact type that is returned.
_TOLERANCE = {"bfloat16": 3e-2, "float16": 1e-2, "float32": 1e-3, "complex64": 1e-3}


def comparison(case: Case) -> tuple[comparators.Tolerances, str]:
    """Return the tolerances of the comparison, and the function applied to both results before it.

    Raises `UnsupportedError` for a comparator that no script can express.
    """
    found, of = comparators.in_script(case.comparator)
    if isinstance(found, tuple):
        return found, of
    tolerance = _tolerance(case)
    return (tolerance, tolerance), of


def _tolerance(case: Case) -> float:
    returned = set(case.graph.output.inputs())
    found = [as_object(n.value).get("dtype") for n in case.graph.nodes if n.name in returned]
    return max((_TOLERANCE[str(d)] for d in found if str(d) in _TOLERANCE), default=1e-3)
