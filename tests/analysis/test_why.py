"""Why: what recompiles have in common, what is read for their stories, and what they do without."""

from __future__ import annotations

import pytest

from torchreel.analysis.why.grouped_causes import key
from torchreel.events.frames import CacheMiss
from torchreel.store import Json
from torchreel.store.records import Event

SIZE = "tensor 'x' size mismatch at index 0. expected 3, actual 4"
GUARD: Json = {
    "expression": "L['x']", "source": None, "types": ["TENSOR_MATCH"], "code": ["check_tensor()"],
    "class": None, "portable": None, "object": None, "arguments": None,
}  # fmt: skip


def _miss(said: str) -> dict[str, Json]:
    return {"reason": said, "guards": [said], "source": "L['x']", "held": 1}


# -- causes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (SIZE, SIZE.replace("actual 4", "actual 5"), True),
        (SIZE, SIZE.replace("index 0", "index 1"), False),
        ("len(L['text']) == 3", "len(L['text']) == 41", True),
        ("L['n'] == -1", "L['n'] == 2.5e-05", True),
        ("L['sizes'] == [1, 2]", "L['sizes'] == [3, 4]", True),
        ("L['name'] == 'x1'", "L['name'] == 'x2'", True),
        ("L['x1'] == 3", "L['x2'] == 3", False),
        ("2 <= L['x'].size()[0]", "16 <= L['x'].size()[0]", True),
        ("2 <= L['x'].size()[0]", "2 <= L['x'].size()[1]", False),
        ("L['self'].layers[0].on == 1", "L['self'].layers[-12].on == 1", False),
        ("___check_obj_id(L['f'], 140214)", "___check_obj_id(L['f'], 93115)", True),
    ],
)
def test_the_values_in_a_guard_make_no_cause_and_its_names_do(
    one: str, other: str, *, same: bool
) -> None:
    keys = {
        key(Event(1, 1, 1, None, CacheMiss.kind, "0/0", 1, _miss(said), None), "f", None)
        for said in (one, other)
    }
    assert len(keys) == (1 if same else 2)
