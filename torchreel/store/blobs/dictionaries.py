"""Dictionaries: what a writer and a reader of packs know before a pack begins.

Most of a small recording is what every recording says: the configuration, the words of a guard, the
fields of an event.  A dictionary is a text of such phrases, the file `dictionary-N.zst` here;
a pack names the one it was written with.  A file that was once released stays as it is,
for ever: another one gets the next number.  `benchmarks/dictionary.py` makes one.
"""

from functools import cache
from importlib.resources import files

import zstandard

from torchreel.errors import NewerStore

NEWEST: int | None = 2
"""The dictionary that packs are written with."""


@cache
def get(number: int | None) -> zstandard.ZstdCompressionDict | None:
    """Return the dictionary of that number; None for none.

    Raises NewerStore for one that this version doesn't have.
    """
    if number is None:
        return None
    file = files("torchreel.store").joinpath(f"dictionary-{number:d}.zst")
    if not 0 < number <= (NEWEST or 0):
        raise NewerStore(
            f"A pack was written with dictionary {number}, which only a newer torchreel has: "
            "upgrade torchreel to read it."
        )
    content = zstandard.ZstdDecompressor().decompress(file.read_bytes())
    return zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
