"""A report as a folder: an index, and a script for the details of each compile.

Lives here: which files there are.  A page that was opened from a disk may not fetch what lies
beside it, so the details are scripts: each is one call with a text in base64, whatever a store
holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from torchreel.report.build import compile_file
from torchreel.report.compiles.keys import KeyReader
from torchreel.report.groups import NextOf
from torchreel.report.listing import list_compiles
from torchreel.report.packing import deflated, encoded
from torchreel.report.page import SITE, render
from torchreel.store import Store
from torchreel.store.addressing import Address

INDEX = Path("index.html")
COMPILES = Path("compiles")


def site_files(
    store: Store, address: Address, next_of: NextOf, notes: Sequence[str]
) -> Iterator[tuple[Path, str]]:
    """Yield the files of a site and their texts, the index last.

    `notes` says what can't be read of the store, and is read when all the rest was.

    Raises UsageError for what the store does not have.
    """
    listing, keys = list_compiles(store, address, next_of), KeyReader(store)
    for number in range(len(listing.compiles)):
        file = compile_file(store, listing, number, next_of, keys)
        yield COMPILES / f"{number}.js", f'receive({number}, "{deflated(encoded(file))}");\n'
    document = msgspec.structs.replace(listing.document, elsewhere="scripts")
    yield INDEX, render(document.with_notes(notes), SITE)
