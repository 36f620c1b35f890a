"""Attributes that are set for a while."""

from __future__ import annotations

import pytest

from torchreel.torch_compat.patching import patched


class _Base:
    @staticmethod
    def answer() -> str:
        return "base"


class _Derived(_Base):
    pass


def test_an_inherited_name_is_inherited_again() -> None:
    with patched(_Derived, "answer", staticmethod(lambda: "patched")):
        assert (_Derived.answer(), _Base.answer()) == ("patched", "base")
    assert "answer" not in vars(_Derived)
    assert _Derived.answer() == "base"


def test_a_static_method_stays_one_when_the_body_raises() -> None:
    with pytest.raises(KeyError), patched(_Base, "answer", lambda: "patched"):
        raise KeyError
    assert _Base().answer() == "base"


def test_a_name_that_is_not_there_is_an_error_unless_it_is_to_be_made() -> None:
    with pytest.raises(AttributeError, match="gone"), patched(_Base, "gone", 1):
        pass
    with patched(_Base, "gone", 1, create=True):
        assert vars(_Base)["gone"] == 1
    assert "gone" not in vars(_Base)
