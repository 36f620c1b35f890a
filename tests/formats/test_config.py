"""Which config entries are recorded: those that are not the default, however they came to be."""

from __future__ import annotations

import pytest
import torch

from torchreel.formats.checkpoints import config
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object


def recorded() -> dict[str, object]:
    return {f"{e['module']}.{e['key']}": e["value"] for e in config.encode_config()}  # type: ignore[index,call-overload]


def test_a_patch_is_recorded_while_it_holds() -> None:
    before = recorded()
    assert "dynamo.specialize_int" not in before
    with torch._dynamo.config.patch(specialize_int=True, cache_size_limit=3):
        assert recorded() == before | {"dynamo.specialize_int": True, "dynamo.recompile_limit": 3}
    assert recorded() == before


def test_a_default_of_another_type_is_no_default() -> None:
    with torch._dynamo.config.patch(specialize_int=0):
        assert recorded()["dynamo.specialize_int"] == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, True), (False, True), ("own.passes", False), ({"fn": "x"}, False)],
)
def test_an_entry_that_could_name_code_is_restored_where_it_names_none(
    value: Json, expected: bool
) -> None:
    assert config.is_portable("inductor", "post_grad_custom_post_pass", value) is expected


def test_no_script_switches_on_what_writes_or_calls() -> None:
    keys = ("trace.save_real_tensors", "fx_graph_remote_cache", "save_args", "max_autotune")
    entries: list[Json] = [
        {"module": "inductor", "key": key, "value": value, "portable": True}
        for key in keys
        for value in (True, False)
    ]
    kept, left = config.writable(entries)
    on = [str(as_object(entry)["key"]) for entry in kept if as_object(entry)["value"]]
    assert on == ["max_autotune"]
    assert len(kept) == 5
    assert left == [f"inductor.{key}" for key in keys[:3]]


def test_a_switch_that_writes_stack_traces_into_code_needs_trust() -> None:
    assert not config.is_portable("inductor", "cpp.enable_kernel_profile", True)
    assert config.is_portable("inductor", "cpp.enable_floating_point_contract_flag", True)
