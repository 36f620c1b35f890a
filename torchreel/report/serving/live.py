"""The answers of a served report: the page, the state of the store, a document, one compile.

Lives here: reading the store when it changed, and no oftener than the reading itself allows.  Not
here: requests and who may make them (`server`).
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from torchreel.errors import TorchreelError, UsageError
from torchreel.report.build import compile_file
from torchreel.report.listing import Listing, list_compiles
from torchreel.report.packing import encoded
from torchreel.report.page import SERVED, render
from torchreel.store import Store, queries
from torchreel.store.addressing import Address
from torchreel.store.records import Compile

_PAUSE = 4
"""Times that a reading took which pass before the next: reading takes a fifth of a core at most."""
_MOST_FILES = 32
"""Details of compiles that are kept, the last ones asked for."""

NextCommand = Callable[[Store, Compile], str]
"""The command to run next, for a compile of a store."""


@dataclass(frozen=True)
class _Read:
    """A listing with the revision of the store that it was read from."""

    listing: Listing
    revision: str
    until: float = 0.0
    """The monotonic time before which the store is not looked at again."""


class LiveReport:
    """A store that is read again when it changed. Its answers are JSON, or a page."""

    def __init__(self, address: Address, next_of: NextCommand) -> None:
        self._address, self._next_of = address, next_of
        self._lock = threading.Lock()
        self._read: _Read | None = None
        self._files: dict[tuple[str, str], bytes] = {}

    def page(self) -> bytes:
        """Return the page.  Raises TorchreelError where the store can't be read."""
        read = self._current()
        return render(read.listing.document, SERVED, read.revision).encode()

    def document(self) -> bytes:
        """Return the document, with its revision."""
        read = self._current()
        document = msgspec.Raw(encoded(read.listing.document))
        return msgspec.json.encode({"revision": read.revision, "document": document})

    def state(self) -> bytes:
        """Return the current revision of the report, and the error if the store can't be read."""
        try:
            return msgspec.json.encode({"revision": self._current().revision})
        except TorchreelError as error:
            read = self._read
            revision = read.revision if read else ""
            return msgspec.json.encode({"revision": revision, "error": str(error)})

    def compile(self, place: str) -> bytes:
        """Return the details of the compile at an address without its store: '2/0/1'.

        Raises UsageError where the report has no such compile.
        """
        with self._lock:
            read = self._current_locked()
            key = read.revision, place
            if key not in self._files:
                self._files[key] = self._file(read.listing, place)
                while len(self._files) > _MOST_FILES:
                    del self._files[next(iter(self._files))]
            return self._files[key]

    def _file(self, listing: Listing, place: str) -> bytes:
        places = [row.place for row in listing.compiles]
        if place not in places:
            raise UsageError(f"{place!r:.100} is no compile of this report.")
        number = places.index(place)
        with Store.open(self._address.store) as store, store.as_far_as_readable():
            found = compile_file(store, listing, number, lambda row: self._next_of(store, row))
        return encoded(found)

    def _current(self) -> _Read:
        with self._lock:
            return self._current_locked()

    def _current_locked(self) -> _Read:
        """Return the listing; it is read again if the store changed and the interval is over."""
        known, began = self._read, time.monotonic()
        if known is not None and began < known.until:
            return known
        revision = self._revision()
        if known is None or known.revision != revision:
            known = self._listed(revision)
        now = time.monotonic()
        self._read = known = replace(known, until=now + _PAUSE * (now - began))
        return known

    def _listed(self, revision: str) -> _Read:
        with Store.open(self._address.store) as store, store.as_far_as_readable() as unreadable:
            queries.require(store, self._address)
            found = list_compiles(store, self._address, lambda row: self._next_of(store, row))
        document = msgspec.structs.replace(
            found.document, notes=[*found.document.notes, *unreadable], elsewhere="server"
        )
        return _Read(Listing(document, found.compiles, found.frames), revision)

    def _revision(self) -> str:
        """Return a digest of the files as they are, or of what a server counts, and of the
        recordings that are not over.
        """
        stamps = [_stamp(Path(self._address.store + suffix)) for suffix in ("", "-wal")]
        text = repr(stamps) if any(stamps) else self._counted()
        known = self._read
        if known is not None and any(row.ended_ns is None for row in known.listing.compiles):
            with Store.open(self._address.store) as store, store.as_far_as_readable():
                text += repr([(row.id, row.status) for row in queries.recordings(store)])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def _counted(self) -> str:
        with Store.open(self._address.store) as store:
            return queries.state_of(store)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
