"""The request to replay a checkpoint, and the report on it: what parent and child tell each other.

Not here: what a child does with it (`checkpoint_child`, `checkpoint_replay`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchreel.store.documents.jsontypes import Json


@dataclass(frozen=True)
class Request:
    """A request of the parent: the checkpoint to replay, and the store to record into."""

    checkpoint: str
    """Path of a file with the checkpoint's bytes."""
    report: str
    """Path of the file to write."""
    store: str
    replay_of: int
    entry: str
    attempt: int = 0
    backward: bool = False
    """Compile the backward graph too: the recorded program called `backward()`."""
    execute: bool = False
    """Run the compiled code on synthesised inputs: the recorded failure happened there."""
    execute_backward: str = ""
    """Run the compiled backward too, or differentiate it ('double backward'): it happened there."""
    compare: bool = False
    """Run it in eager mode too, and compare: the recorded failure is a wrong result."""
    compile_cpp: bool = False
    """Compile the generated C++: the recorded failure was the compiler's, or came later."""
    trust: bool = False
    imports: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """Paths of the checkpoints before it: what the compiler needs of those, was not redacted."""
    compile_timeout: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The facts of its machine that the recorded compile read (`facts.Facts`)."""
    changed: tuple[tuple[str, Any], ...] = ()
    """Config entries that are not the recorded ones: name and value."""
    devices: tuple[str, ...] = ()
    """Devices that are not the recorded ones."""
    python: str = ""
    """The interpreter to run; this one by default."""
    folder: str = ""
    """The one folder that it may write to; without one it is not confined."""
    programs: tuple[str, ...] = ()
    """The programs that it may start if it is confined: the C++ compiler."""
    traced_patterns: tuple[str, ...] = ()
    """Libraries of patterns that Inductor traced in this very compile."""
    known: tuple[tuple[Json, bool], ...] = ()
    """Assertions whose value was known before: each is noted once."""
    lookups: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The outcome of each lookup in the fake-tensor cache, by stage (`fake_cache.Lookup`)."""
    static_inputs: tuple[bool, ...] = ()
    """Of each tensor that is an input whether its sizes became numbers (`real_inputs.static`)."""
    replacements: tuple[tuple[str, Json], ...] = ()
    """The replacements of symbols, in order (`fake_cache.replacements_of`)."""
    remainders: tuple[Json, ...] = ()
    """Those that became known to be zero (`remainders.learned`)."""
    sought: Mapping[str, Any] | None = None
    """The place to stop at (`time_travel.Sought`)."""

    @property
    def interactive(self) -> bool:
        """Return True if the replay stops for a prompt: then the child has the terminal."""
        return self.sought is not None and bool(self.sought["interactive"])


@dataclass
class Report:
    """The report of the child, beside the recording that it made."""

    finished: bool = False
    refused: str = ""
    misused: str = ""
    """The reason why the request makes no sense here."""
    notes: list[str] = field(default_factory=list)
    stand_ins: list[str] = field(default_factory=list)
    """The operators that are not defined here, and have stand-ins."""
    stopped: Mapping[str, Any] | None = None
    """The place where it stopped (`time_travel.Stop`); None if it went on to its end."""

    def write(self, path: str) -> None:
        """Save, in one step."""
        Path(path).write_text(json.dumps(asdict(self)))


def parse(data: Mapping[str, Any]) -> Report:
    """Return the report that a child wrote."""
    return Report(**data)
