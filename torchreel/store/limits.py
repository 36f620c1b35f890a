"""The limits on reading a store, each with its reason (`docs/limits.md`).

Memory and time follow from the size of what is on disk, so that a small file can't make a reader
work for minutes, and a large one is still read whole.  Nothing is read here: see `reading`.
"""

MAX_BLOB_BYTES = 1 << 30
"""No blob is larger, written or read."""
UNPACKED_FLOOR = 16 << 20
"""Whatever a packed blob may unpack to, however small it is: a whole pack (`packs`)."""
UNPACKED_RATIO = 256
"""And this many bytes for each packed one.  Recordings shrink to a thirtieth; the most repetitive
pages that were seen, to a three-hundredth, in a pack below the floor.  A bomb has 10,000."""
MAX_WINDOW_BYTES = 1 << 23
"""The window of zstd while it unpacks: twice what a pack is written with."""

JSON_DEPTH = 128
"""Levels of a JSON document.  Recordings have 12; Python's own limit is some 1,000 calls, and what
reads a document takes a few calls for each level."""
JSON_MEMORY = 448 << 20
"""Bytes that a parsed document may take, by the estimate of `json_memory`."""
JSON_MEMORY_RATIO = 256
"""And this many bytes for each byte of the file, for what one query reads out of all its pages: the
most repetitive recording that was seen, of a state-space model, takes 129."""

SQL_STEPS = 200_000_000
"""Steps of SQLite's virtual machine for one transaction: some ten seconds."""
SQL_STEPS_PER_BYTE = 500
"""And this many for each byte of the file: a query looks at a row, of 20 bytes at least, in some
hundred steps, for each of a few nested loops."""
SQL_VALUE_FLOOR = 1 << 20
"""Bytes of one value or row, if the file is smaller than that: a value that is stored is never
longer than its file, and one that is computed has no reason to be."""
SQL_CASCADE = 10
"""Tables through which a row's deletion goes on: from a recording to its graphs' targets, 4."""
SQL_DEPTH = 50
"""Levels of an expression, compound terms and columns of what somebody else wrote as a schema: ours
has fewer than twenty."""

SERVER_BYTES = 16 << 20
"""The size of the file that a store on a server counts as: that of a large recording, for what one
query reads is of one, and a database has those of many."""
PUSHED_TEXT = 16 << 20
"""Bytes of one text that is sent to another store.  The longest that is recorded is a message, of a
few kilobytes; what is longer is in a blob."""
PUSHED_KEY = 2600
"""Bytes of the texts by which a row is found: a page of an index of PostgreSQL takes three keys."""
PUSHED_BLOB = 256 << 20
"""Bytes of a blob that is sent to another store: the driver holds it three times over."""


def unpacked(packed: int) -> int:
    """Return the most bytes that so many packed ones may unpack to."""
    return min(MAX_BLOB_BYTES, UNPACKED_FLOOR + UNPACKED_RATIO * packed)


def json_memory(text: bytes) -> int:
    """Estimate the bytes that a parsed document takes, from its punctuation, before it is parsed.

    Brackets stand for a list or an object, colons and commas for an item: too much where they are
    in strings.
    """
    containers = text.count(b"[") + 3 * text.count(b"{")
    items = text.count(b",") + 2 * text.count(b":")
    return 2 * len(text) + 72 * containers + 40 * items


def steps(file_bytes: int) -> int:
    """Return the most steps of SQLite's virtual machine for one transaction."""
    return SQL_STEPS + SQL_STEPS_PER_BYTE * file_bytes


def value_bytes(file_bytes: int) -> int:
    """Return the longest value that is read from a file of that size."""
    return min(MAX_BLOB_BYTES, SQL_VALUE_FLOOR + 2 * file_bytes)


def pages_memory(file_bytes: int) -> int:
    """Return the most that one query may build out of the pages of a file, as `json_memory`
    counts.
    """
    return JSON_MEMORY + JSON_MEMORY_RATIO * file_bytes
