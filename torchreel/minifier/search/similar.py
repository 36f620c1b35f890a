"""Compares signatures, leaving out what a recording may not know exactly."""

from __future__ import annotations

from dataclasses import replace

from torchreel.store.failures.signature import NEEDS_FRAME, Signature, telling_frames

_DYNAMO = ("torch._dynamo.output_graph:", "torch._dynamo.convert_frame:")


def below_dynamo(signature: Signature) -> Signature:
    """Return a signature without frames of Dynamo's own, where the failure came after Dynamo.

    They stand at the innermost place when a backend of the user's raised: what called the backend
    is not there when a case is run without the program around it.
    """
    if signature.stage in NEEDS_FRAME:
        return signature
    frames = tuple(name for name in signature.frames if not name.startswith(_DYNAMO))
    return replace(signature, frames=frames)


def is_alike(seen: Signature, recorded: Signature) -> bool:
    """Return True if a failure is the recorded one but for what a recording may not know exactly.

    A process that died may not have shown its signal, and the stage of an exception is where the
    recorder stood, which a run without the program around it may name differently. One that was
    killed was killed for its memory, if that is what the case takes here. Of a failure that came
    right from a backend there is no frame of torch's but those of Dynamo around it, or those that
    pass a call on to it. A recorder of an earlier version may have said less of an exception.
    """
    seen = as_earlier(seen, recorded)
    if recorded.is_kill and seen.failure_class == "memory":
        return seen.stage == recorded.stage
    return replace(
        seen,
        frames=telling_frames(seen.frames),
        stage=recorded.stage,
        partition=recorded.partition,
        signal=recorded.signal if recorded.signal is None else seen.signal,
    ).matches(replace(recorded, frames=telling_frames(recorded.frames)))


def as_earlier(seen: Signature, recorded: Signature) -> Signature:
    """Return a signature without the causes and lines that an earlier version did not record."""
    types, text = recorded.exception_types, recorded.message
    if seen.exception_types[: len(types)] != types or f"\n{text}\n" not in f"\n{seen.message}\n":
        return seen
    deeper = len(seen.exception_types) > len(types)
    frames = recorded.frames if deeper else seen.frames  # those of the innermost exception
    return replace(seen, exception_types=types, message=text, frames=frames)
