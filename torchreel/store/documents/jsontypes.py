"""JSON values and their one canonical spelling, which every digest in a store is taken over.

No knowledge of the schema lives here. Used by everything that writes or compares JSON.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import orjson

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None


def canonical_json(value: Json) -> bytes:
    """Return the canonical UTF-8 JSON of `value`: sorted keys, no spaces, text unescaped.

    Raises ValueError for NaN and infinities (they have no JSON form) and TypeError for anything
    that is not JSON.  Keys have to be text, as their type says: json would quietly make text of
    others, and to look at each would cost more than all the rest of writing a graph down.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    # A lone surrogate (an undecodable byte in a path) is kept as it is rather than refused.
    return text.encode("utf-8", "surrogatepass")


_AS_JSON = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
"""Let orjson refuse what json refuses."""


def exact_json(
    value: object, default: Callable[[object], Json] | None = None, *, sort_keys: bool = False
) -> bytes:
    """Return the compact JSON of a value without floats and enums, five times faster than json.

    orjson writes floats in another way, and NaN as null, without an error. With `sort_keys` the
    result is the canonical JSON. `default` converts values that are no JSON, including tuples of a
    class of their own.

    What orjson refuses goes to json, which writes it or raises TypeError or ValueError: integers of
    more than 64 bits, lone surrogates, keys that are no text, more than 254 levels.
    """
    try:
        return orjson.dumps(value, default, _AS_JSON | (sort_keys and orjson.OPT_SORT_KEYS))
    except orjson.JSONEncodeError:
        text = json.dumps(
            value, sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False, allow_nan=False,
            default=default,
        )  # fmt: skip
        return text.encode("utf-8", "surrogatepass")


def parse_json(text: str | bytes) -> Json:
    """Return the value that `canonical_json` (or any JSON writer) wrote.

    Raises ValueError for what is no JSON, and for what is deeper or larger than anything that was
    ever written (`limits`).
    """
    # Imported late: what is recorded is written, and never read.
    from torchreel.store.documents.parsing import parse

    value: Json = parse(text)
    return value


def json_text(value: Json) -> str:
    """Return the canonical JSON as text, for a column: escaped where UTF-8 can't carry it."""
    try:
        return canonical_json(value).decode("utf-8")
    except UnicodeDecodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(data: bytes) -> str:
    """Return the sha256 of `data` in hex: how blobs, cases and signatures are named."""
    return hashlib.sha256(data).hexdigest()
