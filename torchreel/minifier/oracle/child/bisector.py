"""Holding torch back from a part of what it does: the private names of its bisector.

torch asks `CompilerBisector.disable_subsystem` before each pass, lowering and decomposition whether
to leave it out. Torch's own tool answers from files in Inductor's cache directory, which it deletes
when it is done, the user's own included; here the question is answered in the process that asks
it, and nothing is written anywhere. Called by `graph_runner`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torch._inductor.compiler_bisector import CompilerBisector
from torch._inductor.virtualized import V

from torchreel.torch_compat.patching import patched

_OVERLOAD = re.compile(r"<OpOverload\(op='([\w.]+)', overload='(\w+)'\)>")


class HeldBack:
    """A context in which the applications of a part are counted, and refused beyond a limit."""

    def __init__(self, backend: str, part: str, limit: int) -> None:
        self._part, self._limit = (backend, part), limit
        self._count = 0
        self._patch = patched(
            CompilerBisector, "disable_subsystem", staticmethod(self.disable_subsystem)
        )
        self.left_out = ""
        """The first application that was refused; empty if none was."""

    def __enter__(self) -> HeldBack:
        if self._part[0]:
            self._patch.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._part[0]:
            self._patch.__exit__(None, None, None)

    def disable_subsystem(
        self, backend: str, subsystem: str, debug_info: Callable[[], str] | None = None
    ) -> bool:
        """Return True to leave out this application of a pass or a lowering."""
        if (backend, subsystem) != self._part:
            return False
        number, self._count = self._count, self._count + 1
        if number <= self._limit:
            return False
        self.left_out = self.left_out or _named(subsystem, debug_info)
        return True


def _named(subsystem: str, debug_info: Callable[[], str] | None) -> str:
    """Name the object of an application: a pass, an operator, or a node and its operator."""
    text = debug_info() if debug_info is not None else subsystem
    match = _OVERLOAD.fullmatch(text)
    if match is not None:
        return f"{match[1]}.{match[2]}"
    target = getattr(V.get_current_node(), "target", None) if subsystem == "lowerings" else None
    return f"{target} (node {text})" if target is not None else text


def held_back(setting: object) -> HeldBack:
    """Return a context that holds back what a case names.

    One that does nothing where it names nothing.
    """
    if not isinstance(setting, dict):
        return HeldBack("", "", 0)
    return HeldBack(str(setting["backend"]), str(setting["part"]), int(setting["limit"]))
