"""A backend that does less: what fails without Inductor is no bug of Inductor's.

It also makes every run faster: no code is generated, no C++ compiler is started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchreel.minifier.cases.case import BACKENDS, Case
from torchreel.minifier.passes.base import CaseEdit, CasePass


@dataclass(frozen=True)
class UseBackend(CaseEdit):
    """Compile with that backend, without options."""

    backend: str

    def on(self, case: Case) -> Case | None:
        """Return the case with that backend, if it does less than the one the case has."""
        known = case.backend in BACKENDS
        if not known or BACKENDS.index(self.backend) >= BACKENDS.index(case.backend):
            return None
        extra = {**case.checkpoint.extra, "backend": self.backend, "options": []}
        return replace(case, backend=self.backend, checkpoint=replace(case.checkpoint, extra=extra))


class SimplerBackend(CasePass):
    """AOTAutograd with Inductor's decompositions and partitioner, then alone."""

    name = "backend"
    only_prefix = True  # what does not fail with one of them hardly fails with one that does less

    def edits(self, case: Case) -> Sequence[CaseEdit]:
        """Propose those of torch's own backends that do less, each less than the one before."""
        if case.checkpoint.entry != "graph" or case.backend not in BACKENDS:
            return []
        return [UseBackend(name) for name in reversed(BACKENDS[: BACKENDS.index(case.backend)])]
