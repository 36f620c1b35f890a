"""The words of torch: of its settings and of its functions.

Lives here: what a single word in a message or a document is looked up in before it is taken for a
secret of the program.  Called by `known.values`, `strict`.
"""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from functools import cache, lru_cache

_MODULES = {
    "inductor": "torch._inductor.config", "dynamo": "torch._dynamo.config",
    "functorch": "torch._functorch.config", "fx": "torch.fx.experimental._config",
    "compiler": "torch.compiler.config",
}  # fmt: skip
"""Modules of settings by the names that entries have."""
_FUNCTIONS = ("torch", "torch.nn", "torch.nn.functional")


@lru_cache(16)
def words_of(module: str) -> frozenset[str]:
    """Return the words in the source of one of torch's modules of settings."""
    file = getattr(sys.modules.get(_MODULES.get(module, module)), "__file__", None)
    if file is None:
        return frozenset()
    with open(file, encoding="utf-8") as source:
        return frozenset(re.findall(r"\w+", source.read()))


@cache
def words() -> frozenset[str]:
    """Return all words of torch, and those of Python."""
    found = {*keyword.kwlist, *dir(builtins)}
    for module in _MODULES:
        found |= words_of(module)
    for name in _FUNCTIONS:
        found.update(dir(sys.modules.get(name)))
    return frozenset(found.union(dir(getattr(sys.modules.get("torch"), "Tensor", None))))
