"""The description of one bug, from which its variants are made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """A program with a bug of torch: `fn`, and `make_inputs()`, which may use SIZE and DTYPE.

    Its text may define `after(result, inputs)`, which is called last.
    """

    issue: str
    text: str
    expected: str
    """What the recorded failure has to say, for a recording to count as one of this bug."""
    sizes: tuple[int, ...] = (4, 7, 16, 33)
    dtypes: tuple[str, ...] = ("float32",)
    spellings: tuple[tuple[str, str], ...] = ()
    """Other words for the same call: what every second variant has instead."""
    arguments: str = ""
    """Of `torch.compile`."""
    backward: bool = False
    is_wrong: bool = False
    """True if nothing is raised: the results differ from those of eager mode."""
    variants: int = 20
    """How many are recorded: fewer where the C++ compiler makes each one slow."""
