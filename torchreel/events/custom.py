"""Events of custom operators, script objects and subclasses that take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import field

from torchreel.events.event import EventType, Expression, Nest


class CustomOperator(EventType, frozen=True):
    """A graph calls an operator that torch itself does not define; the name is the operator with
    its overload."""

    kind = "custom.operator"
    paged = False

    schema: str
    """Its schema, with the annotations of aliasing and mutation."""
    mutates: Sequence[str]
    """Names of the arguments that it changes."""
    returns_alias: bool
    """True if a result is or views an argument."""
    tags: Sequence[str]
    """Its tags."""
    compliant: bool | None
    """True if it says that torch.compile can trust it (pt2_compliant_tag)."""
    defined_in: str | None
    """Module of the Python function, or place of the library, that defines it."""
    fake: str | None
    """The place of its fake kernel; null when there is none in Python."""
    kernels: Sequence[str]
    """Dispatch keys that it has kernels for."""
    calls: int
    """Number of nodes that call it, in all bodies."""


class ScriptObject(EventType, frozen=True):
    """A graph holds an object of a class registered with torch (torchbind), or an opaque one; the
    name is its node."""

    kind = "custom.script_object"
    paged = False

    class_: str = field(name="class")
    """Its qualified name."""
    how: str
    """'fake' (a fake class stands for it), 'real', or 'opaque'."""
    fake_class: str | None
    """The class that stands for it, if one does."""
    attributes: Mapping[str, str] | None
    """Class of each attribute of the fake one; nothing is said of the values."""
    expression: str | None
    """Its Source, as Python; null for an attribute of the graph."""


class SubclassInput(EventType, frozen=True):
    """A graph has a tensor of a traceable wrapper subclass for an input; the name is its node."""

    kind = "custom.subclass"
    paged = False

    class_: str = field(name="class")
    """Its qualified name."""
    size: Sequence[Expression]
    """Its sizes."""
    stride: Sequence[Expression]
    """Its strides."""
    dtype: str
    """Its dtype."""
    inner: Nest
    """The tensors within (fake ones, as the compiler sees them): class, sizes, strides, dtype and
    device by attribute; a subclass again has `inner` of its own."""
    context: Nest
    """Class of the constant context that it is rebuilt with."""
    values: Nest
    """Its members that are plain: numbers, truth values, dtypes, names."""
    expression: str | None
    """Its Source, as Python; null for an attribute of the graph."""
