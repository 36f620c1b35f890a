"""The one normalisation of what a replay compares.

Lives here: what two runs of the same compile spell differently without being different.  Not here:
the comparison (`compare`).  Identities of objects never reach a store (`portable.node_meta` numbers
them); what is left is text that names a directory of the machine.
"""

from __future__ import annotations

import re

# Inductor's cache directory, wherever it was (TORCHINDUCTOR_CACHE_DIR): its files lie in
# two-letter folders and are named by a digest, `/tmp/torchinductor_user/ab/cabc...py`.
_CACHE_FILE = re.compile(r"(?:/[\w.+@-]+)+/[a-z0-9]{2}/(c[a-z0-9]{50,52})\b")
# The unique name that Dynamo gives to each compiled function (a UUID).
_COMPILED_FUNCTION = re.compile(r"__compiled_fn_\d+_[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}")


def canonical_code(text: str) -> str:
    """Generated source without the directory it was written to."""
    text = _CACHE_FILE.sub(r"<cache>/\1", text)
    return _COMPILED_FUNCTION.sub("__compiled_fn", text)
