"""Events of operators on fake tensors, and how tensors became fake."""

from __future__ import annotations

from torchreel.events.event import Described, EventType, Expression, Nest


class FakeDispatch(EventType, frozen=True):
    """An operator ran under a fake mode."""

    kind = "fake_tensors.dispatch"
    exact = True

    outcome: str
    """'hit', 'miss', 'bypass' (not cached), 'direct' (no cache asked) or 'raised'."""
    reason: str | None
    """The reason why the cache was bypassed, or the type of the exception."""
    result: Described
    """The result: (dtype, sizes, strides, device) for a tensor; strides are left out where
    sizes are symbolic."""
    depth: int
    """Number of operators that it ran inside of; those come after it."""
    epoch: int
    """Of the mode: memoised items of an earlier one are void."""


class MetaPropagation(EventType, frozen=True):
    """DTensor worked out the layout of an operator's result, with fake tensors of the whole sizes.

    It keeps the answer for the process.  The operators that it runs for it are not noted.
    """

    kind = "fake_tensors.propagation"


class FakeConversion(EventType, frozen=True):
    """A real tensor was turned into a fake one."""

    kind = "fake_tensors.convert"
    exact = True

    tensor: int | None
    """Its id in torch's records describe_tensor and describe_source."""
    describer: int
    """The describer that gave this id."""
    memo: bool
    """True if the fake one existed already."""
    source: Nest
    """Its Source, as Python."""
    context: Nest
    """The symbolic context: which sizes are to be dynamic, with what constraints."""
    constant: bool
    """True if its value is kept, for constant propagation."""
    base: int | None
    """The id of the tensor that it is a view of."""
    real: Described
    """(dtype, sizes, strides, device); null for a subclass."""
    fake: Described
    """(dtype, sizes, strides, device)."""


class FakeMemo(EventType, frozen=True):
    """A fake tensor remembered a symbolic number (an item, a count), or gave it back."""

    kind = "fake_tensors.memo"

    memo: str
    """Item, nonzero, unique or unique_consecutive."""
    reused: bool
    """True if it was remembered from before."""
    value: Expression | None
    """The expression."""
    version: int | None
    """Of the tensor: a mutation voids the memo."""
    epoch: int | None
    """Of the mode: a retrace voids the memo."""


class FakeFailure(EventType, frozen=True):
    """An operator or a conversion raised under a fake mode."""

    kind = "fake_tensors.failure"
    paged = False

    exception: str
    """Its type: UnsupportedOperatorException, DataDependentOutputException, ..."""
    message: str
    """Its message."""
    during: Nest
    """'dispatch' or 'conversion'."""


class FakeFallback(EventType, frozen=True):
    """An operator without a fake kernel ran its real one, on zeros, to see what it returns."""

    kind = "fake_tensors.fallback"
    paged = False

    outcome: str
    """'ok', or the type of the exception."""
    result: Described
    """The result."""


class FakeMismatch(EventType, frozen=True):
    """A fake kernel's result differs from the real one's (with propagate_real_tensors)."""

    kind = "fake_tensors.mismatch"
    paged = False

    outcome: str
    """Replaced by what the real one said, or the type of the exception."""
    message: str
    """The difference."""
    fake: Described
    """The fake kernel's result."""
