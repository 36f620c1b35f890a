"""JSON from a store: its depth, its size in memory and its numbers are looked at.

msgspec parses; what it refuses though json takes it, and though it may have been recorded (half a
surrogate pair), goes to json.  Called by `jsontypes.parse_json`, which all readers of JSON use.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec

from torchreel.store import limits

_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def parse(text: str | bytes) -> Any:
    """Return the value.

    Raises ValueError for what is no JSON, is too deep, or would take too much.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if limits.json_memory(data) > limits.JSON_MEMORY:
        raise ValueError(f"it would take more than {limits.JSON_MEMORY >> 20} MB of memory")
    try:
        value = _parsed(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if is_deep(data, value):
        raise ValueError(f"it is nested deeper than {limits.JSON_DEPTH} levels")
    return value


def _parsed(data: bytes) -> Any:
    try:
        return _ANY.decode(data)
    except msgspec.ValidationError as error:  # a number that is out of range
        raise ValueError(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _JSON.decode(data.decode("utf-8", "surrogatepass"))


def is_deep(data: bytes, value: object) -> bool:
    """Return True if a document has too many levels."""
    if not isinstance(value, (dict, list)):
        return False
    if data.count(b"[") + data.count(b"{") <= limits.JSON_DEPTH:
        return False
    level: list[Any] = [value]
    depth = 0
    while level and depth < limits.JSON_DEPTH:
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        depth += 1
    return bool(level)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"it holds {text:.20}, which is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if value - value == 0 else _no_number(text)


_JSON = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)
