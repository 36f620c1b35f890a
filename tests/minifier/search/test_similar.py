"""Failures that are one but for what a recording may not know, and failures that are not."""

from __future__ import annotations

from dataclasses import replace

import torch

from torchreel.minifier.search.similar import is_alike
from torchreel.store.failures.signature import Signature, from_exception


def observed(text: str) -> Signature:
    """The signature of an exception that Dynamo observed while it traced a function."""

    def traced(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(text)

    try:
        torch.compile(traced, backend="eager", fullgraph=True)(torch.ones(1))
    except torch._dynamo.exc.Unsupported as error:
        return from_exception(error, "dynamo")
    raise AssertionError("nothing was raised")


def test_exceptions_that_dynamo_observed_are_told_apart() -> None:
    one, other = map(observed, ("no device", "no function"))
    assert "no device" in one.message
    assert one.matches(observed("no device"))
    assert not one.matches(other)


def test_a_recording_of_an_earlier_version_may_say_less() -> None:
    one = observed("no device")
    earlier = replace(
        one,
        message=one.message.partition("\n")[2],
        exception_types=one.exception_types[:1],
        frames=("torch._dynamo.exc:unimplemented",),
    )
    assert not one.matches(earlier)
    assert is_alike(one, earlier)
    assert not is_alike(earlier, one)
    assert not is_alike(one, replace(earlier, message="Observed"))
