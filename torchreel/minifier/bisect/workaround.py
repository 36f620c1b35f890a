"""The smallest change of the config with which a case passes: something to paste today.

Lives here: the switches that are worth a try, the order in which they are preferred, and the search
for one. Not here: other ways around a failure (another backend: `bisect`). Called by `explain` and
`bisect`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchreel.minifier.bisect.steps import with_entry
from torchreel.minifier.cases.case import Case
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.search.cached_oracle import CachedOracle
from torchreel.store.documents.kinds import as_object

_MODULES = {"functorch": "torch._functorch.config", "inductor": "torch._inductor.config"}


@dataclass(frozen=True)
class Switch:
    """An entry of a config with a value that makes the compiler do less."""

    module: str
    key: str
    value: bool | int

    @property
    def line(self) -> str:
        """Return the assignment, to paste."""
        return f"{_MODULES[self.module]}.{self.key} = {self.value!r}"


# From what costs the least speed to what costs the most; each keeps results the same, or makes them
# more exact.
_FUNCTORCH = (
    Switch("functorch", "cse", False),
    Switch("functorch", "donated_buffer", False),
    Switch("functorch", "view_replay_for_aliased_outputs", False),
    Switch("functorch", "treat_parameters_as_free_to_save", False),
)
_INDUCTOR = (
    Switch("inductor", "size_asserts", False),
    Switch("inductor", "scalar_asserts", False),
    Switch("inductor", "emulate_precision_casts", True),
    Switch("inductor", "fallback_random", True),
    Switch("inductor", "joint_graph_constant_folding", False),
    Switch("inductor", "reorder_for_locality", False),
    Switch("inductor", "reorder_for_peak_memory", False),
    Switch("inductor", "loop_ordering_after_fusion", False),
    Switch("inductor", "comprehensive_padding", False),
    Switch("inductor", "layout_optimization", False),
    Switch("inductor", "constant_and_index_propagation", False),
    Switch("inductor", "cpp.enable_loop_tail_vec", False),
    Switch("inductor", "cpp.enable_tiling_heuristics", False),
    Switch("inductor", "cpp.max_horizontal_fusion_size", 1),
    Switch("inductor", "batch_fusion", False),
    Switch("inductor", "split_reductions", False),
    Switch("inductor", "inplace_buffers", False),
    Switch("inductor", "allow_buffer_reuse", False),
    Switch("inductor", "pattern_matcher", False),
    Switch("inductor", "use_pre_grad_passes", False),
    Switch("inductor", "use_joint_graph_passes", False),
    Switch("inductor", "use_post_grad_passes", False),
    Switch("inductor", "epilogue_fusion", False),
    Switch("inductor", "cpp.dynamic_threads", True),
    Switch("inductor", "cpp.threads", 1),
    Switch("inductor", "max_fusion_size", 1),
    Switch("inductor", "cpp.simdlen", 0),
    Switch("inductor", "fallback_by_default", True),
)


# How often a change that did not really cure is put aside.
_TIMES = 3


@dataclass(frozen=True)
class Workaround:
    """The lines of Python that cure a case."""

    lines: tuple[str, ...]
    checked: bool
    """True if the cured case also ran to its end, with results like those of eager."""

    @property
    def line(self) -> str:
        """Return it as one line."""
        return "; ".join(self.lines)


def switches(case: Case) -> tuple[Switch, ...]:
    """Return the switches that its backend looks at, without those that are set in the case
    already.
    """
    known = {
        (as_object(entry).get("module"), as_object(entry).get("key"))
        for entry in case.checkpoint.config
    }
    aot = case.checkpoint.entry == "aot"
    inductor = aot or case.backend == "inductor"
    found = (() if aot else _FUNCTORCH) + (_INDUCTOR if inductor else ())
    if ":" in case.backend or case.backend == "eager":
        return ()
    return tuple(switch for switch in found if (switch.module, switch.key) not in known)


def find_workaround(judge: CachedOracle, oracle: Oracle, case: Case) -> Workaround | None:
    """Return the cheapest change of the config that was found to cure a case; None if none was.

    All switches at once come first: if the case fails with them too, no one of them helps. Then the
    shortest run of them that cures is halved out, and of that run its last one alone is tried, and
    as few of the others as it needs. What only lets a wrong result through (an assertion that is
    switched off) is none, and the search goes on without it. At most about 12 runs a time.
    """
    known = switches(case)
    for _ in range(_TIMES):
        found = _smallest(judge, case, known) or []
        if not found:
            return None
        report = oracle.judge(_thorough(_with(case, found)))
        if report.verdict not in ("same", "other"):
            lines = tuple(switch.line for switch in found)
            return Workaround(lines, checked=report.verdict == "none")
        known = tuple(switch for switch in known if switch not in found)
    return None


def _smallest(judge: CachedOracle, case: Case, known: Sequence[Switch]) -> list[Switch] | None:
    def cures(some: Sequence[Switch]) -> bool:
        return _passes(judge.verdict(_with(case, some)))

    if not known or not cures(known):
        return None
    low, high = 0, len(known)  # the first `high` cure, the first `low` do not
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if cures(known[:middle]) else (middle, high)
    last = known[high - 1]
    if cures([last]):
        return [last]
    return _without_needless(cures, list(known[:high]))


def _without_needless(cures: object, found: list[Switch]) -> list[Switch]:
    """Leave out halves, then quarters, ... of the others, as long as the rest cures."""
    assert callable(cures)
    size = len(found) // 2
    while size >= 1:
        at = 0
        while at < len(found) - 1:
            rest = found[:at] + found[at + size :]
            if rest and cures(rest):
                found = rest
            else:
                at += size
        size //= 2
    return found


def _with(case: Case, some: Sequence[Switch]) -> Case:
    for switch in some:
        case = with_entry(case, switch.module, switch.key, switch.value)
    return case


def _thorough(case: Case) -> Case:
    """Return the case run to its end and compared with eager, where it can be."""
    if case.checkpoint.entry == "aot":
        return replace(case, harness="run")
    return replace(case, harness="accuracy") if case.eager else replace(case, harness="run")


def _passes(report: object) -> bool:
    return getattr(report, "verdict", None) == "none"
