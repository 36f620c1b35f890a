"""`torchreel share`: everything that leaves, and whether it still fails."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from torchreel.commands.rendering import streams
from torchreel.errors import UsageError
from torchreel.sharing import pseudonyms
from torchreel.sharing.bundle import versions
from torchreel.sharing.share import Shared


def report(shared: Shared, *, json: bool) -> int:
    """Print all that leaves; returns the exit status: 1 if the bundle does not show the failure."""
    if json:
        streams.block(json_module.dumps(_document(shared), indent=1))
    else:
        _print(shared)
    return 0 if shared.verification.holds else 1


def read_back(file: str, map_path: Path) -> None:
    """Print a text with the real names."""
    names = pseudonyms.read_map(map_path)
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8", "replace")
    except OSError as error:
        raise UsageError(
            f"{file or 'The file to read back'} can't be read: {error.strerror}."
        ) from error
    streams.block(pseudonyms.read_back(text, names))


def _document(shared: Shared) -> dict[str, object]:
    return {
        "bundle": str(shared.bundle),
        "map": str(shared.map),
        "verified": shared.verification.holds,
        "how": shared.verification.how,
        "reduced": shared.was_reduced,
        "call_nodes": shared.call_nodes,
        "leaves": {**asdict(shared.leaving), "versions": versions()},
    }


def _print(shared: Shared) -> None:
    case = "the reduced case" if shared.was_reduced else "the checkpoint"
    streams.result(f"This leaves, of {case} of {_calls(shared.call_nodes)}:")
    for name, value in _lines(shared):
        streams.result(f"  {name:<10} {value}")
    tried, kept = shared.numbers.tried, shared.numbers.kept
    streams.result(
        f"{tried - kept} of {tried} numbers and settings were replaced or left out; "
        + (f"{kept} are needed." if kept else "none is needed.")
    )
    streams.result(f"wrote {shared.bundle}")
    streams.result(f"wrote {shared.map}: the real names; it stays here")
    _print_verification(shared)


def _calls(count: int) -> str:
    return f"{count} call" if count == 1 else f"{count} calls"


def _lines(shared: Shared) -> Iterator[tuple[str, str]]:
    found = shared.leaving
    yield "operators", ", ".join(found.operators)
    yield "types", ", ".join(found.types)
    yield "sizes", ", ".join(map(str, found.sizes)) or "none"
    if found.hints:
        yield "symbols", ", ".join(found.hints)
    yield "numbers", ", ".join(found.numbers) or "none"
    if found.needed:
        yield "  needed", ", ".join(found.needed)
    yield "texts", ", ".join(found.options) or "none"
    yield "config", ", ".join(found.config) or "none"
    yield "failure", _failure(shared)
    yield "versions", ", ".join(f"{key} {value}" for key, value in versions().items())
    for line in found.reveals:
        yield "reveals", line


def _failure(shared: Shared) -> str:
    signature = shared.signature
    parts = [
        signature.failure_class,
        f"in {signature.stage}",
        "/".join(signature.exception_types),
        f"at {', '.join(signature.frames)}" if signature.frames else "",
        signature.message.replace("\n", " "),
    ]
    return "; ".join(filter(None, parts))


def _print_verification(shared: Shared) -> None:
    result = shared.verification
    if not result.holds:
        streams.say(
            f"The bundle is NOT verified: it does not show the failure ({result.detail}).",
            style="bold red",
        )
        return
    streams.say(f"verified {result.how}: the same signature", style="green")
    streams.next_command("torchreel", "audit", str(shared.bundle))
