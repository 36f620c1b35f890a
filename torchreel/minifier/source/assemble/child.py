"""The process that loads a bundle and writes programs: `python -m ...assemble.child`.

It reads one request (JSON) from standard input: the files of the bundle and of its description.
Loading runs the code of whoever made the bundle, and so does running the frame once in eager mode,
to see which functions it needs. The answer is a list of programs, the shortest first.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torchreel.errors import TorchreelError


def main() -> None:
    """Carry out the request on standard input."""
    request = json.load(sys.stdin)
    sys.path.insert(0, request["directory"])
    answer: dict[str, Any] = {"programs": [], "refused": ""}
    try:
        for name in request["imports"]:
            importlib.import_module(name)
        answer["programs"] = programs(
            Path(request["data"]).read_bytes(),
            Path(request["document"]).read_bytes(),
            request["place"],
            request["imports"],
        )
    except TorchreelError as error:
        answer["refused"] = str(error)
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")


def programs(data: bytes, document: bytes, place: str, imports: list[str]) -> list[str]:
    """Return the programs of a bundle.

    Runs its code; raises what `LoadedBundle.load` and `write` raise.
    """
    from torchreel.minifier.source.assemble.objects import Choice
    from torchreel.minifier.source.assemble.program import write
    from torchreel.replay.child.frames.bundles import LoadedBundle

    bundle = LoadedBundle(data, document, "", place)
    codes = _executed(bundle)
    lines = json.loads(document).get("lines") or {}
    choices = [Choice(frozenset(codes)), Choice(frozenset(codes), closures=True)] if codes else []
    choices += [Choice(), Choice(closures=True)]
    found = [
        write(_whole(bundle), bundle.call, lines, choice, list(codes.values()), imports)
        for choice in choices
    ]
    return list(dict.fromkeys(found))


def _whole(bundle: Any) -> Any:
    """Return the frame, or the function that it resumes.

    Functions of Dynamo's making have no source.

    What the program had put into modules is there from now on: it is written where it is used.
    """
    from torchreel.replay.child.frames import patches

    patches.take_out()
    frame = bundle.load()
    patches.put(frame.patches)
    return frame.resumed or frame


def _executed(bundle: Any) -> Mapping[tuple[str, int, str], Any]:
    """Return the code that the frame, or the module of an export, runs in eager mode.

    {} if that fails.
    """
    from torchreel.minifier.oracle.child.caught import ErrorCatcher
    from torchreel.minifier.source.assemble.exports import call_module
    from torchreel.minifier.source.assemble.program import Ran
    from torchreel.replay.child.frames.tracing import imposed

    frame, ran = _whole(bundle), Ran()
    with ExitStack() as stack, ErrorCatcher() as outcome:
        stack.enter_context(imposed(bundle.call, "0/0", frame.config, trust=True))
        with ran:
            if bundle.call.exported:
                call_module(frame)
            else:
                frame.function(*frame.args, **frame.kwargs)
    return {} if outcome.error is not None else ran.codes


if __name__ == "__main__":
    main()
