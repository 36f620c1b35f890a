"""Pseudonyms: one short name for each name of the program, and the map that undoes them.

Lives here: giving them, the file of the map, and reading an answer back. Not here: which names get
one (`constructed`). The letter says what a name is of: `x` an input, `v` a value, `a` an attribute,
`m` a module, `n` a namespace, `f` a function, `o` an overload, `p` a parameter, `t` a text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from torchreel.errors import NotAStore, UsageError

KINDS = {
    "x": "input", "v": "value", "a": "attribute", "m": "module", "n": "namespace",
    "f": "function", "o": "overload", "p": "parameter", "t": "text",
}  # fmt: skip
FORM = re.compile(rf"[{''.join(KINDS)}][1-9][0-9]{{0,5}}")
"""The form of a pseudonym."""
_KNOWN = re.compile(rf"(?<![\w.]){FORM.pattern}(?!\w)|(?<=\.){FORM.pattern}(?!\w)")
_FORMAT = "torchreel pseudonyms 1"
_LARGEST_MAP = 64 << 20


class Pseudonyms:
    """Gives names; the same name of the same kind gets the same pseudonym."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name."""
        found = self._given.get((kind, name))
        if found is None:
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            found = self._given[kind, name] = f"{kind}{number}"
        return found

    @property
    def names(self) -> dict[str, str]:
        """Return the names by their pseudonyms."""
        return {given: name for (_, name), given in self._given.items()}

    def in_text(self, text: str) -> str:
        """Return a text in which each name that has a pseudonym is written as that."""
        known = {name: given for given, name in self.names.items() if len(name) > 1}
        if not known:
            return text
        longest = sorted(known, key=len, reverse=True)
        words = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?!\w)")
        return words.sub(lambda match: known[match[0]], text)


def write_map(path: Path, names: Mapping[str, str], bundle: str, *, force: bool) -> None:
    """Write the map of a bundle, for its owner alone.

    Raises UsageError where there is a file already, unless `force`.
    """
    document = {"format": _FORMAT, "bundle": bundle, "names": dict(names)}
    text = json.dumps(document, indent=1, ensure_ascii=True) + "\n"
    if force:
        path.unlink(missing_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise UsageError(
            f"{path} exists already, and may be the only key to an earlier bundle: use --map to "
            "write elsewhere, or --force to replace it."
        ) from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def read_map(path: Path) -> dict[str, str]:
    """Return the names of a map by their pseudonyms.

    Raises NotAStore where the file is no map.
    """
    try:
        if path.stat().st_size > _LARGEST_MAP:
            raise ValueError("it is too large")
        document = json.loads(path.read_text(encoding="utf-8"))
        names = document["names"]
        if document["format"] != _FORMAT or not isinstance(names, dict):
            raise ValueError("it says of itself that it is something else")
        if not all(FORM.fullmatch(key) and isinstance(names[key], str) for key in names):
            raise ValueError("one of its names is none")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotAStore(
            f"{path} is no map of pseudonyms ({error!s:.100}): give the file that 'torchreel "
            "share' wrote beside the bundle."
        ) from error
    return names


def read_back(text: str, names: Mapping[str, str]) -> str:
    """Return a text in which each pseudonym is the name that it stands for."""
    return _KNOWN.sub(lambda match: names.get(match[0], match[0]), text)
