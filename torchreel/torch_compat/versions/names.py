"""A private name of torch: what it is needed for, and which releases have it.

Lives here: the declaration, the lookup, and the comparison of declarations with the torch that is
installed.  Not here: the declared names, which stand at the top of the modules that use them.
Called by the recorder, where it attaches, and by `torchreel doctor`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Collection, Iterable
from typing import Any, Literal, NamedTuple

from torchreel.torch_compat.versions import releases
from torchreel.torch_compat.versions.releases import Installed

State = Literal["found", "other release", "missing", "not in this torch"]
"""Of a name: it is there; it belongs to other releases; it should be there; or, in a torch of an
unknown release, it is not there."""


class TorchName(NamedTuple):
    """A private name of torch, why torchreel needs it, and the releases that have it.

    `since` is the first release that has the name and `until` the last one ('2.14'); '' stands for
    the oldest release that torchreel knows, and for no end.
    """

    module: str
    qualname: str
    why: str
    since: str = ""
    until: str = ""

    def __str__(self) -> str:
        return f"{self.module}.{self.qualname}"

    def releases(self) -> str:
        """Return the releases as text; '' for a name that all known releases have."""
        if self.until:
            return f"{self.since or releases.KNOWN[0]} to {self.until}"
        return f"since {self.since}" if self.since else ""

    def is_in(self, torch: Installed) -> bool | None:
        """Return True if a torch has this name; None if that is not known.

        A release after the known ones, or a build before a release, may have any name.
        """
        if torch.release is None:
            return None
        after = not self.since or releases.parse(self.since) <= torch.release
        return after and (not self.until or torch.release <= releases.parse(self.until))


def attachable(names: Iterable[TorchName], torch: Installed | None = None) -> set[TorchName]:
    """Return the names that a torch (the installed one) has, or may have."""
    torch = torch or releases.installed()
    return {name for name in names if name.is_in(torch) is not False}


def resolve(name: TorchName) -> tuple[Any, str]:
    """Return the object that holds a name of a loaded module, and the name there.

    The name may be that of a field, which a class declares and its instances have.
    Raises AttributeError if this torch does not have it.
    """
    owner: Any = sys.modules[name.module]
    *path, last = name.qualname.split(".")
    for part in path:
        owner = getattr(owner, part)
    if last not in vars(owner) and last not in _annotated(owner):
        raise AttributeError(f"{name} does not exist in this torch")
    return owner, last


def _annotated(owner: object) -> Collection[str]:
    """Return the fields that a class or module declares itself; since Python 3.14 not in its
    `vars`.
    """
    declares = inspect.isclass(owner) or inspect.ismodule(owner)
    return inspect.get_annotations(owner) if declares else ()  # type: ignore[arg-type]


def is_here(name: TorchName) -> bool:
    """Return True if the installed torch has a name of a loaded module.

    By its declaration, if that can say: a name that should be there is then an error where it is
    used, and not another way that is taken in silence.
    """
    expected = name.is_in(releases.installed())
    return _is_there(name) if expected is None else expected


def has(value: Any, name: TorchName) -> bool:
    """Return True if `value` has a declared attribute: by its declaration, if that can say."""
    expected = name.is_in(releases.installed())
    return hasattr(value, name.qualname.rpartition(".")[2]) if expected is None else expected


def read(value: Any, name: TorchName, default: Any = None) -> Any:
    """Return a declared attribute of `value`; `default` in a torch that does not have it."""
    return getattr(value, name.qualname.rpartition(".")[2]) if has(value, name) else default


def state_of(name: TorchName, torch: Installed | None = None) -> State:
    """Compare one declaration with the installed torch; imports the module of the name."""
    expected = name.is_in(torch or releases.installed())
    if expected is False:
        return "other release"
    if _exists(name):
        return "found"
    return "missing" if expected else "not in this torch"


def _exists(name: TorchName) -> bool:
    try:
        importlib.import_module(name.module)
    except ImportError:
        return False
    return _is_there(name)


def _is_there(name: TorchName) -> bool:
    try:
        resolve(name)
    except AttributeError:
        return False
    return True
