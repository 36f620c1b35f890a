"""The profile of sizes that torch keeps between processes, read as data."""

from __future__ import annotations

import pickle
from collections import defaultdict
from io import BytesIO
from pathlib import Path

import pytest
from torch._dynamo import pgo

from torchreel.torch_compat.dynamo.automatic_dynamic import _ProfileReader


class Hostile:
    """Touches a file where it is unpickled by pickle alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_what_torch_writes_is_read() -> None:
    state = pgo.CodeState()
    entry = pgo.FrameStateSizeEntry(
        scalar=pgo.auto_unset, size=(pgo.auto_dynamic, 8), stride=(pgo.InferStride(1), 1)
    )
    state.automatic_dynamic["L['x']"] = entry
    states = defaultdict(pgo.CodeState)
    states[pgo.CodeId("program.py", 3, "f", "")] = state
    data = pickle.dumps(states)
    assert _ProfileReader(BytesIO(data)).load() == pickle.loads(data) == states


def test_nothing_else_is_made_of_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "owned"
    for content in (Hostile(path), {"x": Hostile(path)}, print):
        with pytest.raises(pickle.UnpicklingError, match="a profile of sizes holds no"):
            _ProfileReader(BytesIO(pickle.dumps(content))).load()
    assert not path.exists()
    pickle.loads(pickle.dumps(Hostile(path)))
    assert path.exists(), "the attack is one"
