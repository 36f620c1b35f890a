"""The settings of a recording besides its store and mode; the environment carries them to a child.

Lives here: `Settings`, and the environment variables that carry them from `torchreel record` (or a
shell) to the program.  Not here: what they do (`watchdog`, `flight`, `retention`, `redaction`,
`control`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torchreel.errors import UsageError
from torchreel.recorder.control import OFF_SIGNAL_VARIABLE, signal_number
from torchreel.recorder.event_log.retention import Limits
from torchreel.recorder.redaction import Rules

TIMEOUT_VARIABLE = "TORCHREEL_COMPILE_TIMEOUT"
SLOW_VARIABLE = "TORCHREEL_SLOW_COMPILE"
BYTES_VARIABLE = "TORCHREEL_MAX_BYTES"
AGE_VARIABLE = "TORCHREEL_MAX_AGE"
SAMPLE_VARIABLE = "TORCHREEL_SAMPLE"
REDACT_VARIABLE = "TORCHREEL_REDACT"
PATTERN_VARIABLE = "TORCHREEL_REDACT_PATTERN"
"""One regular expression a line."""

FRAMES_VARIABLE = "TORCHREEL_FRAMES"

VARIABLES = (
    TIMEOUT_VARIABLE, SLOW_VARIABLE, BYTES_VARIABLE, AGE_VARIABLE, SAMPLE_VARIABLE,
    REDACT_VARIABLE, PATTERN_VARIABLE, OFF_SIGNAL_VARIABLE, FRAMES_VARIABLE,
)  # fmt: skip

FRAMES = ("failing", "all", "none")
"""Of which frames a bundle is kept: code that a replay with --trust can trace again."""

_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LONGEST = 1e9
"""Seconds, thirty years: the kernel's clocks end somewhere."""
_LARGEST = 2**63 - 1
_SMALLEST = 1 << 20
"""Bytes: a store of nothing but its tables has a tenth of that."""


@dataclass(frozen=True)
class Settings:
    """The settings of a recording: limits, samples, redaction, frames.

    `compile_timeout` and `slow_compile` in seconds: a compile that takes longer counts as hung, or
    is kept whole in `flight` mode.  `max_bytes` and `max_age` (seconds) bound the store; `sample`
    is the share of compiles of which more than a summary is kept.  `redact` is 'default', 'all' or
    'none', `redact_patterns` are regular expressions on top of it.  `off_signal` names a signal
    that switches recording off.  `frames` says of which compiles the Python frame is kept: of
    'failing' ones, of 'all' or of 'none'.  Raises UsageError for what makes no sense.
    """

    compile_timeout: float | None = None
    slow_compile: float | None = None
    max_bytes: int | None = None
    max_age: float | None = None
    sample: float = 1.0
    redact: str = "default"
    redact_patterns: tuple[str, ...] = ()
    off_signal: str | None = None
    frames: str = "failing"

    def __post_init__(self) -> None:
        if not 0 <= self.sample <= 1:
            raise UsageError(f"A sample is a share between 0 and 1, not {self.sample}.")
        for name in ("compile_timeout", "slow_compile", "max_age"):
            _require_seconds(name, getattr(self, name))
        if self.max_bytes is not None and self.max_bytes < _SMALLEST:
            raise UsageError(f"A store takes at least 1M, not {self.max_bytes} bytes.")
        if self.off_signal:
            signal_number(self.off_signal)
        Rules(self.redact, self.redact_patterns)
        if self.frames not in FRAMES:
            raise UsageError(
                f"Frames of {self.frames!r} can't be kept: use {', '.join(FRAMES[:-1])} or none."
            )

    @property
    def limits(self) -> Limits:
        """Return the limits of the store: size and age."""
        return Limits(self.max_bytes, self.max_age)

    @property
    def rules(self) -> Rules:
        """Return the rules of redaction."""
        return Rules(self.redact, self.redact_patterns)

    def variables(self) -> dict[str, str]:
        """Return the environment variables for these settings; defaults are left out."""
        found = {
            TIMEOUT_VARIABLE: _text(self.compile_timeout),
            SLOW_VARIABLE: _text(self.slow_compile),
            BYTES_VARIABLE: _text(self.max_bytes),
            AGE_VARIABLE: _text(self.max_age),
            SAMPLE_VARIABLE: "" if self.sample == 1 else repr(self.sample),
            REDACT_VARIABLE: "" if self.redact == "default" else self.redact,
            PATTERN_VARIABLE: "\n".join(self.redact_patterns),
            OFF_SIGNAL_VARIABLE: self.off_signal or "",
            FRAMES_VARIABLE: "" if self.frames == "failing" else self.frames,
        }
        return {name: value for name, value in found.items() if value}

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        given: Mapping[str, object] = MappingProxyType({}),
    ) -> Settings:
        """Return the settings in `given`, and for the rest (or None) those of the variables.

        A variable is not read when its setting is given. Raises UsageError for an invalid variable.
        """
        environ = os.environ if environ is None else environ
        said = {name: value for name, value in given.items() if value is not None}
        for name, (variable, parse) in _READ.items():
            text = environ.get(variable, "")
            if name not in said and text:
                said[name] = parse(variable, text)
        return cls(**said)  # type: ignore[arg-type]


def _require_seconds(name: str, value: float | None) -> None:
    if value is not None and not 0 <= value <= _LONGEST:  # not a number is neither
        raise UsageError(
            f"{name} is a number of seconds, 0 or more and up to {_LONGEST:.0f}, not {value:g}."
        )


def _text(value: float | None) -> str:
    return "" if value is None else repr(value)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, which is no number.") from None


def parse_size(text: str) -> int:
    """Return bytes: '500M', '2GiB', '1000000'.  Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is no size: write bytes, or 500M, or 2G.")
    found = float(match[1]) * _SIZES[match[2].upper()]
    if found > _LARGEST:
        raise UsageError(f"{text!r:.40} is no size: no disk is so large.")
    return int(found)


def parse_age(text: str) -> float:
    """Return seconds: '30d', '12h', '90'.  Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no age: write seconds, or 12h, 30d, 2w.")
    found = float(match[1]) * _AGES[match[2] or "s"]
    if found > _LONGEST:
        raise UsageError(f"{text!r:.40} is no age: write less than thirty years.")
    return found


_READ: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    "compile_timeout": (TIMEOUT_VARIABLE, _number),
    "slow_compile": (SLOW_VARIABLE, _number),
    "max_bytes": (BYTES_VARIABLE, lambda _, text: parse_size(text)),
    "max_age": (AGE_VARIABLE, lambda _, text: parse_age(text)),
    "sample": (SAMPLE_VARIABLE, _number),
    "redact": (REDACT_VARIABLE, lambda _, text: text),
    "redact_patterns": (PATTERN_VARIABLE, lambda _, text: tuple(filter(None, text.split("\n")))),
    "off_signal": (OFF_SIGNAL_VARIABLE, lambda _, text: text),
    "frames": (FRAMES_VARIABLE, lambda _, text: text),
}
"""The variable of each setting, and how its text is read."""
