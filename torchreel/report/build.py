"""From a store to the document of a report.

Lives here: whose details have room in a page, and the details of one compile as a file of its own.
Not here: the listing (`listing`), the parts of details (`compiles`), nor the page (`page`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from torchreel.escaping.shell import command
from torchreel.report.compiles.details import CompileReader
from torchreel.report.compiles.keys import KeyReader
from torchreel.report.document import CompileDetails, CompileFile, CompileRow, ReportDocument
from torchreel.report.groups import NextOf
from torchreel.report.listing import Listing, list_compiles
from torchreel.report.packing import Packer, encoded, json_block
from torchreel.report.page import PAGE_BYTES
from torchreel.store import Store, queries
from torchreel.store.addressing import Address

MAX_BYTES = 5_000_000
"""The default of the largest size of a page: a browser opens that at once."""
_MOST_OF_FILE = 50_000_000
"""Bytes of the details of one compile that has a file of its own."""


@dataclass(frozen=True)
class ReportOptions:
    """The largest size of the page, and the next command of a compile."""

    next_of: NextOf
    max_bytes: int = MAX_BYTES


def build(store: Store, address: Address, options: ReportOptions) -> ReportDocument:
    """Return the document about all that an address covers: a store, a recording, a compile.

    Raises UsageError for what the store does not have.
    """
    return _with_details(store, list_compiles(store, address, options.next_of), options)


def compile_file(
    store: Store, listing: Listing, place: int, next_of: NextOf, keys: KeyReader | None = None
) -> CompileFile:
    """Return the details of the compile at a place of a listing, with all parts that they refer to.

    `keys` is shared by those who ask for many of them.
    """
    packer = Packer(_MOST_OF_FILE)
    reader = _reader(listing, place, packer, keys or KeyReader(store))
    return CompileFile(_details(reader, next_of), packer.parts)


# -- details, as far as there is room -------------------------------------------------------------


def _with_details(store: Store, listing: Listing, options: ReportOptions) -> ReportDocument:
    document = listing.document
    room = options.max_bytes - PAGE_BYTES - len(json_block(encoded(document)))
    packer, rows, keys = Packer(max(room, 0)), list(document.compiles), KeyReader(store)
    without = 0
    for place in _most_wanted_first(rows):
        reader = _reader(listing, place, packer, keys)
        details = packer.add_if_room(partial(_details, reader, options.next_of))
        without += details is None
        rows[place] = msgspec.structs.replace(rows[place], details=details)
    notes = [_left_out(store, without, rows)] if without else []
    return msgspec.structs.replace(document, compiles=rows, packed=packer.parts, notes=notes)


def _reader(listing: Listing, place: int, packer: Packer, keys: KeyReader) -> CompileReader:
    compile, earlier = listing.compiles[place], listing.earlier(place)
    shared = keys.shared(compile.recording_id, listing.frames[compile.recording_id])
    return CompileReader(keys.store, compile, packer, shared, lambda log: keys.keys(log, earlier))


def _details(reader: CompileReader, next_of: NextOf) -> CompileDetails:
    return reader.details(next_of(reader.compile))


def _most_wanted_first(rows: Sequence[CompileRow]) -> list[int]:
    """Return compiles that failed first, attempts given up last; else as they were recorded.

    That is how they lie in the file: to read them in another order takes many times as long.
    """
    return sorted(range(len(rows)), key=lambda place: _rank(rows[place]))


def _rank(row: CompileRow) -> int:
    if row.status in queries.FAILING:
        return 0
    return 2 if row.status == "restarted" else 1


def _left_out(store: Store, without: int, rows: Sequence[CompileRow]) -> str:
    example = next(row.address for row in rows if row.details is None)
    page = f"report-{example.replace('/', '-')}.html"
    one = command("torchreel", "report", f"{store.target}#{example}", "-o", page)
    site = command("torchreel", "report", store.target, "--site", "DIR")
    return (
        f"The details of {without} of {len(rows)} compiles have no room in this page. Show those "
        f"of one with '{one}', of more with --max-size, or of all with '{site}'."
    )
