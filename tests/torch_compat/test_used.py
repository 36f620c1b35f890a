"""Every name of torch that the source uses is in this release, or is declared for others.

`make compat` runs this under each known release.
"""

import pytest

from torchreel.torch_compat.versions import used
from torchreel.torch_compat.versions.bounded import BOUNDED
from torchreel.torch_compat.versions.names import state_of
from torchreel.torch_compat.versions.releases import KNOWN, Installed, installed, parse
from torchreel.torch_compat.versions.used import is_in_torch, missing_names, names_in, names_used

SOURCE = """
from __future__ import annotations
import torch._dynamo.config
from torch._guards import CompileId as Id

def f(torch_like):
    from torch._inductor import metrics as m
    torch_like.nothing
    return Id.from_string("0/0"), m.reset(), torch._C._dispatch_get_all_op_names, Id.__name__
"""


def test_the_names_of_a_file_are_those_it_imports_and_reaches() -> None:
    assert names_in(SOURCE) == {
        "torch._dynamo.config", "torch._guards.CompileId", "torch._guards.CompileId.from_string",
        "torch._inductor.metrics", "torch._inductor.metrics.reset", "torch._C",
        "torch._C._dispatch_get_all_op_names",
    }  # fmt: skip


def test_another_thing_called_torch_is_none() -> None:
    assert names_in("def f(torch): return torch.release") == set()


def test_every_name_that_is_used_is_in_this_release_or_declared_for_others() -> None:
    assert "torch._guards.CompileId" in names_used()
    assert missing_names() == []


def test_a_name_that_is_nowhere_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(used, "names_used", lambda: {"torch._dynamo.nothing_of_this_name": ()})
    assert missing_names() == ["torch._dynamo.nothing_of_this_name"]


@pytest.mark.parametrize("name", BOUNDED, ids=str)
def test_a_bounded_name_is_used_and_in_the_releases_that_it_declares(name: object) -> None:
    assert str(name) in names_used()
    assert state_of(name) in ("found", "other release")  # type: ignore[arg-type]
    assert any(name.is_in(Installed("", known)) is False for known in KNOWN)  # type: ignore[attr-defined]


def test_a_bounded_name_is_not_in_the_releases_before() -> None:
    release = installed().release
    early = [name for name in BOUNDED if release and name.since and release < parse(name.since)]
    assert not any(is_in_torch(str(name)) for name in early)


@pytest.mark.parametrize(
    "name", ["torch._dynamo.pgo._CODE_STATE", "torch.version.cuda", "torch._inductor.compile_fx"]
)
def test_what_is_declared_without_a_value_is_there(name: str) -> None:
    assert is_in_torch(name)
