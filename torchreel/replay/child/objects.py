"""The program's own backend, passes and config callables, read back from a checkpoint.

Each is a pickle, as frames are: to load one runs code of the store, so nothing here happens without
trust. Lives here: which there are, and the loading of one. Not here: how they are kept
(`torchreel.recorder.probes.bundles`), what is done with them (`restore`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import partial

from torchreel.errors import (
    DamagedStore,
    RefusedError,
    ReplayError,
    UnsupportedError,
    UntrustedError,
)
from torchreel.formats import targets
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.tensors import subclasses
from torchreel.replay.child.frames.bundles import read_object
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object

KEY = "objects"
"""Key in the `extra` of a checkpoint."""
BACKEND = "backend"
OPTION = "options."
"""Prefix of the names of options of the `torch.compile` call."""


def kept(doc: CheckpointDoc, *, trust: bool) -> dict[str, Callable[[], object]]:
    """Return a loader for each of the program's own objects, by name; nothing without trust.

    Names are those of config entries (`inductor.post_grad_custom_post_pass`), of options
    (`options.NAME`), of classes (`subclass.NAME`), of call targets (`opaque:NAME`), and `backend`.
    A loader raises `UnsupportedError` if its object can't be loaded.
    """
    table = doc.extra.get(KEY)
    if not trust or not isinstance(table, Mapping):
        return {}
    return {str(name): partial(_loaded, str(name), data) for name, data in table.items()}


_classes: dict[str, object] = {}
"""Those that were loaded: nothing else may hold a class, and then it would be gone."""


def load_own(doc: CheckpointDoc, *, trust: bool) -> None:
    """Load the program's own classes of inputs, and functions that the graph calls.

    So they are found by their names.  Not a class that this process has already.
    """
    for name, load in kept(doc, trust=trust).items():
        if name.startswith(targets.NOT_PORTABLE) and callable(function := load()):
            targets.admit(name, function)
        if name.startswith(subclasses.KEY) and name not in _classes:
            try:
                subclasses.resolve(name.removeprefix(subclasses.KEY))
            except UntrustedError:
                _classes[name] = load()


def _loaded(name: str, data: Json) -> object:
    if not isinstance(data, Mapping) or not isinstance(data.get("data"), str):
        reason = as_object(data).get("reason")
        raise UnsupportedError(f"it was not kept: {reason or 'unknown'!s:.200}")
    try:
        pickled = base64.b64decode(str(data["data"]), validate=True)
        return read_object(pickled, data.get("document"), name)
    except (RefusedError, ReplayError) as error:
        raise UnsupportedError(str(error)) from error
    except ValueError as error:
        raise DamagedStore(f"What the store holds of {name} can't be read: {error}.") from error
