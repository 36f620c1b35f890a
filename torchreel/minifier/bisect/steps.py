"""One step of a bisection: how a case is run differently, as text and as data.

- `aot_eager`: with another backend;
- `inductor:lowerings`: with that backend, and without that part of it;
- `inductor:lowerings:3`: with the first four applications of that part only (counted from 0, as
  `TORCH_BISECT_MAX` of torch's own tool counts);
- `inductor:fallback_random=True`: with that backend, and one entry of its config set.

Lives here: the parts that backends have, steps and their spelling, and the case that a step makes
of a case. A step is put into the case itself, so that its verdict is kept like any other. Not here:
which steps are taken (`search`), how torch is held back (`oracle.child.bisector`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchreel.errors import UsageError
from torchreel.minifier.cases.case import Case
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

LADDER = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
"""Torch's backends, each of which does what the one before it does, and more."""

# As in the table of torch._inductor.compiler_bisector (a test compares them); the entries of the
# config by their full names.
PARTS: Mapping[str, tuple[str, ...]] = {
    "aot_eager_decomp_partition": ("functorch.cse=False", "decomposition"),
    "inductor": (
        "pre_grad_passes", "joint_graph_passes", "post_grad_passes",
        "inductor.fallback_random=True", "inductor.emulate_precision_casts=True",
        "inductor.layout_optimization=False", "inductor.comprehensive_padding=False",
        "cudagraphs", "lowerings",
    ),
}  # fmt: skip
NONE = -1
"""The limit of a part that is not applied at all."""

_ENTRY = re.compile(r"(inductor|functorch|dynamo)\.(\w+)=(\w+)", re.ASCII)
_PART = re.compile(r"(\w+)(?::(\d+))?", re.ASCII)


@dataclass(frozen=True)
class BisectStep:
    """One way to run a case; by default as it is."""

    backend: str = ""
    part: str = ""
    """A part of the backend that is held back."""
    limit: int = NONE
    """The last application of the part that takes place."""
    entry: str = ""
    """`inductor.fallback_random=True`."""

    def __str__(self) -> str:
        if self.entry:
            return f"{self.backend}:{self.entry}"
        if not self.part:
            return self.backend or "as it is"
        limit = "" if self.limit == NONE else f":{self.limit}"
        return f"{self.backend}:{self.part}{limit}"

    def in_words(self) -> str:
        """Return the step in words."""
        if self.entry:
            return f"{self.backend}, {self.entry}"
        if not self.part:
            return f"backend {self.backend}" if self.backend else "as it is"
        if self.limit == NONE:
            return f"{self.backend} without {words(self.part)}"
        return f"{self.backend}, {words(self.part)} 0 to {self.limit} only"

    def variables(self) -> dict[str, str]:
        """Return the environment variables with which torch alone does the same.

        Empty where none do.
        """
        if self.entry or not self.backend:
            return {}
        found = {"TORCH_BISECT_BACKEND": self.backend}
        if self.part:
            found |= {"TORCH_BISECT_SUBSYSTEM": self.part, "TORCH_BISECT_MAX": str(self.limit)}
        return found


def words(part: str) -> str:
    """Return the name of a part in words: 'post_grad passes' for 'post_grad_passes'."""
    return part.removesuffix("_passes") + " passes" if part.endswith("_passes") else part


def parse_step(text: str) -> BisectStep:
    """Return a step from its spelling.  Raises UsageError."""
    backend, colon, rest = text.partition(":")
    if backend not in LADDER:
        raise UsageError(
            f"A step begins with a backend, one of {', '.join(LADDER)}, not {backend!r:.60}."
        )
    if not colon:
        return BisectStep(backend)
    if _ENTRY.fullmatch(rest):
        return BisectStep(backend, entry=rest)
    match = _PART.fullmatch(rest)
    parts = [part for part in PARTS.get(backend, ()) if "=" not in part]
    if match is None or match[1] not in parts:
        known = f"one of {', '.join(parts)}" if parts else "none"
        raise UsageError(f"The backend {backend} has the parts {known}, not {rest!r:.60}.")
    return BisectStep(backend, match[1], NONE if match[2] is None else int(match[2]))


def part_step(backend: str, part: str) -> BisectStep:
    """Return the step that takes a whole part away, or that sets an entry of the config."""
    return BisectStep(backend, entry=part) if "=" in part else BisectStep(backend, part)


def applied(step: BisectStep, case: Case) -> Case:
    """Return the case run in the way of a step."""
    if step.backend and step.backend != case.backend:
        case = _with_backend(case, step.backend)
    if step.entry:
        match = _ENTRY.fullmatch(step.entry)
        assert match is not None, "steps are parsed or made from PARTS"
        return with_entry(case, match[1], match[2], ast.literal_eval(match[3]))
    if step.part:
        dial: Json = {"backend": step.backend, "part": step.part, "limit": step.limit}
        extra = {**case.checkpoint.extra, "held_back": dial}
        return replace(case, checkpoint=replace(case.checkpoint, extra=extra))
    return case


def _with_backend(case: Case, backend: str) -> Case:
    """Return the case with another backend of torch's own, without options.

    They are of the first.
    """
    extra = {**case.checkpoint.extra, "backend": backend, "options": []}
    # Eager compiles nothing: a failure of its is one of the run.
    harness = "run" if backend == "eager" and case.harness == "compile" else case.harness
    changed = replace(case, backend=backend, harness=harness)
    return replace(changed, checkpoint=replace(case.checkpoint, extra=extra))


def with_entry(case: Case, module: str, key: str, value: Json) -> Case:
    """Return the case with one entry of a config set."""
    entry: Json = {"module": module, "key": key, "value": value, "portable": True}
    doc = case.checkpoint
    others = [e for e in doc.config if (as_object(e).get("module"), as_object(e).get("key")) != (module, key)]  # fmt: skip # noqa: E501
    options = [e for e in as_list(doc.extra.get("options")) if as_object(e).get("key") != key]
    extra = {**doc.extra, "options": options} if "options" in doc.extra else doc.extra
    return replace(case, checkpoint=replace(doc, config=(*others, entry), extra=extra))
