"""Words of a command line that a reader may copy: quoted where the shell would read more in them.

Not here: which command is meant. Called by the console and by the text of an issue.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from torchreel.escaping.characters import visible

_PLAIN_WORD = re.compile(r"[\w@%+=:,./#-]+", re.ASCII)


def word(text: object) -> str:
    """Return one word; '#' and '=' inside of a word need no quotes."""
    found = visible(text)
    plain = _PLAIN_WORD.fullmatch(found) and found[0] not in "#="
    return found if plain else shlex.quote(found)


def command(*words: object) -> str:
    """Return a command as one would type it."""
    return " ".join(map(word, words))


def with_variables(variables: Mapping[str, str], *words: object) -> str:
    """Return a command with environment variables before it: `NAME=value python repro.py`.

    The names are ours; a value may come from a store.
    """
    set_before = [f"{name}={word(value)}" for name, value in variables.items()]
    return " ".join([*set_before, command(*words)])
