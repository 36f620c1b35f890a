"""Answers from the event log what Inductor measures on a device.

Lives here: the choices of an operator, and whether padding makes a product of matrices faster.  Not
here: configurations of a Triton kernel, which are measured where the program runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from torchreel.errors import UnsupportedError
from torchreel.replay.imposed.facts import AUTOTUNED, FUSED, PADDED
from torchreel.store.documents.jsontypes import Json, canonical_json
from torchreel.store.documents.kinds import list_only
from torchreel.torch_compat.patching import patched


def impose(stack: ExitStack, facts: Mapping[str, Json]) -> None:
    """Have Inductor find what it measured when it was recorded, as long as the stack is open."""
    from torch._inductor.fx_passes import pad_mm
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    times = iter(list_only(facts.get(FUSED)))

    def measured(scheduler: Any, *args: Any) -> tuple[float, str]:
        found = next(times, None)
        if isinstance(found, (int, float)):
            return float(found), ""
        raise UnsupportedError(_NOT_MEASURED)

    for name in ("benchmark_fused_nodes", "benchmark_codegened_module"):
        stack.enter_context(patched(Scheduler, name, measured))
    # A kernel that is loaded to be measured looks for the driver.
    stack.enter_context(patched(triton_helpers, "set_driver_to_gpu", lambda: None))
    tuned = _Autotuned(list_only(facts.get(AUTOTUNED)))
    stack.enter_context(patched(AlgorithmSelectorCache, "do_autotuning", tuned.function()))
    stack.enter_context(patched(pad_mm, "_should_pad", _padding(list_only(facts.get(PADDED)))))


_NOT_MEASURED = (
    "Inductor measured on the device whether to fuse kernels, which the event log does not say: "
    "replay it where there is such a device, or from another stage"
)


class _Autotuned:
    """Gives each choice of an operator the time that was measured, in the order of the log."""

    def __init__(self, rows: list[Json]) -> None:
        self._rows = [
            (str(row[0]), [_time(pair) for pair in row[1]])
            for row in rows
            if isinstance(row, list) and len(row) == 2 and isinstance(row[1], list)
        ]

    def function(self) -> Callable[..., dict[Any, float]]:
        """Return what stands in for `AlgorithmSelectorCache.do_autotuning`."""

        def do_autotuning(
            cache: Any, name: str, nodes: Any, layout: Any, inputs: Any, key: Any, choices: Any,
            *args: Any, **kwargs: Any,
        ) -> dict[Any, float]:  # fmt: skip
            times = self._times(name)
            if len(times) == len(choices):
                return {choice: time for choice, (_, time) in zip(choices, times, strict=True)}
            # Of a reduced graph, say: the first ones are torch's own kernels.
            return {c: dict(times).get(c.name, 1.0 + number) for number, c in enumerate(choices)}

        return do_autotuning

    def _times(self, name: str) -> list[tuple[str, float]]:
        for number, (operator, pairs) in enumerate(self._rows):
            if operator == name:
                del self._rows[number]
                return pairs
        return []


def _time(pair: Json) -> tuple[str, float]:
    """Return the name of a choice and its milliseconds."""
    match pair:
        case [str(name), (int() | float()) as time] if not isinstance(time, bool):
            with suppress(OverflowError):
                return name, float(time)
    raise UnsupportedError(f"the time of a choice is a number, found {pair!r:.80}")


def _padding(rows: list[Json]) -> Callable[..., bool]:
    """Return what stands in for `pad_mm._should_pad`: the padded products are in the event log."""
    from torchreel.recorder.event_log import describe

    known = {canonical_json(row) for row in rows}

    def should_pad(match: Any, mat1: Any, mat2: Any, op: Any, input: Any = None) -> bool:
        operands = (mat1, mat2) if input is None else (input, mat1, mat2)
        row: Any = [f"{op.__name__}_replace", describe.result(operands)]
        return canonical_json(row) in known

    return should_pad
