"""Members of modules and classes that something else has put there."""

from __future__ import annotations

import functools
import json.decoder
import sys
from collections import namedtuple
from types import FunctionType
from typing import ClassVar, NamedTuple

import pytest
import torch
import torch.nn.functional
from hypothesis import given, settings
from hypothesis.strategies import integers

from tests.recorder import programs
from torchreel.recorder.frames.patches import Patch, patches
from torchreel.replay.child.frames.patches import put, take_out


def own(x: object) -> object:
    return x


class Point(NamedTuple):
    x: int


def test_what_nobody_changed_is_as_its_source_says() -> None:
    """Imported, inherited, decorated and generated members are no patches.

    Not of pytest, which hypothesis changes.
    """
    for owner in (
        torch, torch.nn.functional, torch.nn.Module, torch.nn.Linear, json.decoder, programs, Point,
        functools, namedtuple("Pair", "a b"), torch.optim.Adam, torch.Tensor,
    ):  # fmt: skip
        assert patches([owner], dir(owner)) == [], owner


def test_functions_and_classes_of_the_program_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.functional, "gelu", own)
    monkeypatch.setattr(torch.nn, "GELU", Point)
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda self, x: x)
    monkeypatch.setattr(torch.nn.LayerNorm, "extra", staticmethod(own), raising=False)
    monkeypatch.setattr(torch.nn.LayerNorm, "size", property(own), raising=False)
    owners = [torch.nn.functional, torch.nn, torch.nn.LayerNorm]
    found = patches(owners, ["gelu", "GELU", "forward", "extra", "size"])
    assert {(patch.owner.__name__, patch.name) for patch in found} == {
        ("torch.nn.functional", "gelu"), ("torch.nn", "GELU"), ("LayerNorm", "forward"),
        ("LayerNorm", "extra"), ("LayerNorm", "size"),
    }  # fmt: skip
    assert any(patch.value is own for patch in found)
    assert [patch.name for patch in patches(owners[:2], ["gelu"])] == ["gelu"], "no other is named"


def test_what_a_named_function_comes_to_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer calls a function of another module, by its own global."""
    monkeypatch.setattr(torch.nn.functional, "layer_norm", own)
    found = patches([torch.nn.LayerNorm, sys.modules[torch.nn.LayerNorm.__module__]], ["forward"])
    assert [(patch.owner.__name__, patch.name) for patch in found] == [
        ("torch.nn.functional", "layer_norm")
    ]


def test_a_member_of_the_module_of_a_named_function_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `tensordict` does with `torch.vmap`: no module of the program holds the owner."""
    vmap = sys.modules["torch._functorch.vmap"]
    monkeypatch.setattr(vmap, "_unwrap_batched", own)
    assert isinstance(torch.vmap, FunctionType)
    found = patches([torch.vmap], ["torch"])
    assert [(patch.owner, patch.name) for patch in found] == [(vmap, "_unwrap_batched")]


def test_a_function_of_another_library_is_found_if_it_has_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that a library has made without a name is most likely the work of a decorator."""
    monkeypatch.setattr(torch, "relu", pytest.approx)
    monkeypatch.setattr(torch, "sin", made_by_a_library())
    assert [patch.name for patch in patches([torch], ["relu", "sin"])] == ["relu"]


def made_by_a_library() -> object:
    """A function of `hypothesis` that no module has."""
    found = settings(max_examples=1)(given(integers())(lambda x: None))
    assert found.__module__ == __name__
    found.__module__ = "hypothesis.core"
    return found


class Loud(type):
    """A metaclass that says what it is asked."""

    asked: ClassVar[list[str]] = []

    def __getattribute__(cls, name: str) -> object:
        Loud.asked.append(name)
        return super().__getattribute__(name)


class Proxy:
    """It finds out what it is when it is asked for its class."""

    @property
    def __class__(self) -> type:
        Loud.asked.append("proxy")
        return type

    @__class__.setter
    def __class__(self, value: type) -> None: ...


def test_no_code_of_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    loud = Loud("Loudly", (), {"own": own, "proxy": Proxy()})
    monkeypatch.setattr(torch.nn, "loud", loud, raising=False)
    monkeypatch.setattr(torch.nn, "proxy", Proxy(), raising=False)
    Loud.asked.clear()
    names = [patch.name for patch in patches([torch.nn, loud], ["loud", "proxy", "own"])]
    assert names == ["loud"]
    assert Loud.asked == []


def test_what_a_decorator_makes_anew_stays_as_it_is() -> None:
    """A replay imports the program, whose decorators make functions like those that are kept."""

    def made(name: str, inner: object) -> FunctionType:
        def wrapped(self: object) -> object:
            return name, inner

        return wrapped

    def with_default(value: object) -> FunctionType:
        def defaulted(self: object, x: object = value, *, y: object = value) -> object:
            return x, y

        return defaulted

    two = torch.ones(2)

    class Owner:
        here = made("a", made("b", (own, 1)))
        held = with_default(two)

    for kept, is_alike in (
        (made("a", made("b", (own, 1))), True),
        (made("a", made("c", (own, 1))), False),
        (made("a", made("b", (own, 2))), False),
        (made("a", made("b", (own, 1, 1))), False),
        (made("a", own), False),
    ):
        before = Owner.here
        put([Patch(Owner, "here", kept)])
        assert (Owner.here is before) is is_alike
        take_out()
        assert Owner.here is before
    held = Owner.held
    put([Patch(Owner, "held", with_default(two))])
    assert Owner.held is held
    take_out()
    put([Patch(Owner, "held", with_default(torch.ones(2)))])
    assert Owner.held is not held
    take_out()
    assert Owner.held is held
