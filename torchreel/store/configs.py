"""Config entries, and the rows that a set of them is.

Used by both writers (`writer`, `direct`); nothing of the database is known here.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torchreel.store.documents.jsontypes import Json, canonical_json, digest_of, json_text


class ConfigEntry(NamedTuple):
    """One config value that is not the default: `module` 'torch._inductor.config', dotted `key`.

    `portable` is False for what may only be restored with `--trust` (a command, path, callable).
    """

    module: str
    key: str
    value: Json
    portable: bool = True


def ordered(entries: Sequence[ConfigEntry]) -> list[ConfigEntry]:
    """Return the entries in the order of their names."""
    return sorted(entries, key=lambda e: (e.module, e.key))


def digest(entries: Sequence[ConfigEntry]) -> str:
    """Return the digest of a set of entries, in whatever order they come."""
    document: Json = [[e.module, e.key, e.value, e.portable] for e in ordered(entries)]
    return digest_of(canonical_json(document))


def rows(config_id: int, entries: Sequence[ConfigEntry]) -> list[dict[str, object]]:
    """Return the rows of `config_entries` for a set of entries."""
    return [
        {
            "config_id": config_id,
            "module": entry.module,
            "key": entry.key,
            # as text: a bound str would be taken for JSON text, and a value may be a str
            "value": json_text(entry.value),
            "portable": entry.portable,
        }
        for entry in ordered(entries)
    ]
