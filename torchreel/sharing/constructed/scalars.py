"""Numbers, dtypes, devices, expressions: the leaves of a case, each checked by its form.

Lives here: what has no name in it but those of symbols. Not here: arguments of calls (`arguments`),
tensors (`descriptions`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torchreel.errors import UnsupportedError
from torchreel.formats import symbols
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import list_only

FLOAT = re.compile(r"-?0x[01]\.?[0-9a-f]{0,13}p[+-]\d{1,4}|-?inf|nan")
DEVICE = re.compile(r"(?:cpu|cuda|meta|xpu|mps|hpu)(?::\d{1,3})?")
CONSTANT = re.compile(r"[a-z][a-z0-9_]{0,30}")
"""The name of a dtype, a layout or a memory format of torch."""
SYMBOL = re.compile(r"(zuf|zf|uf|zs|s|u|f|i|b|t|n)(\d{1,6})")
_PRECISE = re.compile(r"-?0x[0-9a-f]{1,40}p-?\d{1,6}")
_TOKEN = re.compile(r"\s*(?:(-?\d+)|([A-Za-z_]\w*)|(\$-?\w+)|\"([^\"]*)\"|([(),]))")
_UNBACKED = ("u", "zuf", "uf")
_LONGEST = 100_000


class Symbols:
    """The symbols of a case under other names: those that torch makes tell a name's hash."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, symbol: str) -> str:
        """Return the name of a symbol in the bundle: its kind, and a number."""
        found = self._names.get(symbol)
        if found is not None:
            return found
        match = SYMBOL.fullmatch(symbol)
        if match is None:
            raise refused("the symbol", symbol)
        kind = match[1]
        counted = kind in _UNBACKED  # torch counts these, and derives nothing from a name
        given = len([one for one in self._names if SYMBOL.sub(r"\1", one) == kind])
        self._names[symbol] = symbol if counted else f"{kind}{given}"
        return self._names[symbol]

    def expression(self, data: Json) -> Json:
        """Return an expression over the symbols of the case."""
        if type(data) is int:
            return data
        if not isinstance(data, str) or len(data) > _LONGEST:
            raise refused("the size", data)
        found, at = [], 0
        while at < len(data.rstrip()):
            match = _TOKEN.match(data, at)
            if match is None:
                raise refused("the expression", data)
            found.append(self._token(*match.groups()))
            at = match.end()
        return "".join(found)

    def _token(
        self, number: str | None, name: str | None, constant: str | None, text: str | None,
        mark: str | None,
    ) -> str:  # fmt: skip
        if name is not None:
            return name if name in symbols.function_names() else self.name(name)
        if constant is not None:
            if constant not in symbols.constant_names():
                raise refused("the constant", constant)
            return constant
        if text is not None:
            if not _PRECISE.fullmatch(text):
                raise refused("the number", text)
            return f'"{text}"'
        return f"{mark} " if mark == "," else str(number if number is not None else mark)


def refused(what: str, data: Json) -> UnsupportedError:
    """Return the error for a value that has no form that may leave."""
    return UnsupportedError(
        f"{what} {data!a:.60} has no form that may leave, so the case can't be shared as it is: "
        "reduce it first ('torchreel minify'), or share another failure."
    )


def number_of(data: Json) -> Json:
    """Return None, a truth value or a number, as the tagged tree has them."""
    if data is None or isinstance(data, (bool, int)):
        return data
    if isinstance(data, Mapping) and len(data) == 1:
        ((kind, held),) = data.items()
        if kind == "f" and isinstance(held, str) and FLOAT.fullmatch(held):
            return {"f": held}
        parts = list_only(held)
        if kind == "c" and len(parts) == 2 and all(FLOAT.fullmatch(str(part)) for part in parts):
            return {"c": [str(part) for part in parts]}
    raise refused("the value", data)


def constant_of(kind: str, data: Json) -> str:
    """Return the name of a dtype, layout or memory format that torch has."""
    from torchreel.formats.node_arguments import torch_constant

    if not isinstance(data, str) or not CONSTANT.fullmatch(data):
        raise refused(f"the {kind}", data)
    try:
        torch_constant(kind, data)
    except UnsupportedError as error:
        raise refused(f"the {kind}", data) from error
    return data


def device_of(data: Json) -> str:
    """Return the name of a kind of device, and its number."""
    if not isinstance(data, str) or not DEVICE.fullmatch(data):
        raise refused("the device", data)
    return data


def whole(data: Json) -> int:
    """Return a whole number, and no truth value."""
    if type(data) is not int:
        raise refused("the number", data)
    return data
