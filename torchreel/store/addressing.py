"""Addresses of things in a store: `run.db#2/0/1@417`.

    run.db            the store (a path or a SQLAlchemy URL)
    run.db#2          recording 2
    run.db#2/0/1      compile 0/1 of recording 2: its last attempt
    run.db#2/0/1_1    attempt 1 of that compile (torch's own spelling)
    run.db#2/g1/0/1   compile 0/1 after the first reset of Dynamo, which gives its names anew
    run.db#2@417      event 417 in the event log of recording 2
    run.db#2/0/1@417  the same event, as part of that compile

The part before `#` may be left out: the default store is meant. Only the grammar lives here; which
row an address means is decided in `queries`.
"""

import os
import re
from typing import NamedTuple

from torchreel.errors import UsageError
from torchreel.store.passwords import hidden

DEFAULT_STORE = "torchreel.db"
"""The default store, of recordings and of commands."""

UNNAMED = "-"
"""The name of a compile that has none: it did not come through Dynamo (aot_function, export)."""

STORE_VARIABLE = "TORCHREEL_STORE"

# torch._guards.CompileId prints 0/1, !0/0/1 and !0 with compiled autograd, - where a part is None.
_COMPILE = r"!?(?:\d+|-)(?:/(?:\d+|-))*"
_PLACE = (
    r"(?P<recording>\d+)"
    rf"(?:(?:/g(?P<generation>\d+))?/(?P<compile>{_COMPILE})(?:_(?P<attempt>\d+))?)?"
    r"(?:@(?P<event>\d+))?"
)
# SQLite's integers end here.
_LARGEST = 2**63 - 1


class Address(NamedTuple):
    """One place in a store; the parts that are None were left out."""

    store: str
    recording: int | None = None
    compile: str | None = None
    attempt: int | None = None
    event: int | None = None
    generation: int = 0
    """The number of resets of Dynamo before the compile."""

    def __str__(self) -> str:
        if self.recording is None:
            return self.store
        generation = f"/g{self.generation}" if self.generation else ""
        compile_ = "" if self.compile is None else f"{generation}/{self.compile}"
        attempt = "" if self.attempt is None else f"_{self.attempt}"
        event = "" if self.event is None else f"@{self.event}"
        return f"{self.store}#{self.recording}{compile_}{attempt}{event}"


def is_capture(compile_id: str) -> bool:
    """Return True for the name of a capture of compiled autograd, and of nothing in it."""
    return compile_id.startswith("!") and "/" not in compile_id


def default_store() -> str:
    """Return the store that is meant when none is named: `TORCHREEL_STORE`, or `torchreel.db`
    here.
    """
    return hidden(os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)


def parse(text: str = "") -> Address:
    """Return the address that `text` spells, without a password; UsageError when it spells none."""
    given, text = text, hidden(text)
    store, mark, place = text.rpartition("#")
    # A path may hold a '#' of its own.
    if not mark or os.path.exists(text):
        return Address(text or default_store())
    match = re.fullmatch(_PLACE, place, re.ASCII)
    if match is None:
        raise UsageError(
            f"{text!r} is no address: after '#' comes RECORDING[/COMPILE][@EVENT], "
            f"as in run.db#2/0/1@417, not {place!r}."
        )
    return Address(
        hidden(given.removesuffix(f"#{place}")) if store else default_store(),
        _number(match, "recording"),
        match["compile"],
        _number(match, "attempt"),
        _number(match, "event"),
        _number(match, "generation") or 0,
    )


def without_event(address: str) -> str:
    """Return an address without its `@EVENT`; the URL of a store has an '@' of its own."""
    store, mark, place = address.rpartition("#")
    return f"{store}{mark}{place.partition('@')[0]}" if mark else address


def _number(match: re.Match[str], part: str) -> int | None:
    digits = match[part]
    if digits is None:
        return None
    # Counted before it is converted: Python refuses to convert thousands of digits.
    if len(digits) > 19 or int(digits) > _LARGEST:
        raise UsageError(f"No store has a {part} of number {digits:.24}: it is too large.")
    return int(digits)
