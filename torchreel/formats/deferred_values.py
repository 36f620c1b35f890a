"""A value that is spelled when it is written, in a form that can be read back.

Lives here: `DeferredValue`, apart from what spells it (`shape_env.calls`), so that the compiling
thread can make one without importing torch.
"""

from __future__ import annotations


class DeferredValue:
    """A value of a ShapeEnv, and the form (of `shape_env.calls.FIELDS`) in which it is written."""

    __slots__ = ("form", "value")

    def __init__(self, form: str, value: object) -> None:
        self.form, self.value = form, value
