"""The programs that a reduction of a Dynamo failure starts with.

Lives here: starting the process that loads the bundle (`assemble.child`). Not here: what it does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from torchreel.errors import MinifyError, UnsupportedError
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.source.assemble import child
from torchreel.replay.child.frames.bundles import read_bundle
from torchreel.store.database import Store
from torchreel.store.failures.signature import signal_name
from torchreel.store.records import Compile

_SECONDS = 600.0  # importing torch and what the program needs, and running the frame once


def programs(store: Store, compile: Compile, options: MinifyOptions) -> list[SourceCase]:
    """Return the programs of a compile's frame, the shortest first.

    Raises `UntrustedError` without `MinifyOptions.trust`, and `UnsupportedError` when there is no
    bundle or no source in it.
    """
    bundle = read_bundle(store, compile, options.trust)
    with tempfile.TemporaryDirectory(prefix="torchreel-frame-") as folder:
        place = Path(folder)
        (place / "data").write_bytes(bundle.data)
        (place / "document").write_bytes(bundle.document)
        request = {
            "data": str(place / "data"),
            "document": str(place / "document"),
            "answer": str(place / "answer"),
            "place": bundle.place,
            "imports": list(options.imports),
            "directory": os.getcwd(),
        }
        try:
            ended = subprocess.run(
                [sys.executable, "-m", child.__name__],
                input=json.dumps(request),
                capture_output=True,
                encoding="utf-8",
                errors="replace",  # what a program of a stranger's prints
                timeout=_SECONDS,
                check=False,
                env=_environment(),
            )
        except subprocess.TimeoutExpired:
            raise UnsupportedError(
                f"The frame of compile {compile.place} was not loaded within {_SECONDS:g} s."
            ) from None
        if not (place / "answer").exists():
            said = ended.stderr.strip()[-2000:]
            raise MinifyError(
                f"The frame of compile {compile.place} could not be loaded. Its process "
                f"{_ending(ended.returncode)}" + (f", and said:\n{said}" if said else ".")
            )
        answer = json.loads((place / "answer").read_text(encoding="utf-8"))
    if answer["refused"]:
        raise UnsupportedError(
            f"No program can be made of the frame of compile {compile.place}: {answer['refused']}"
        )
    texts = [str(text) for text in answer["programs"]]
    return [
        SourceCase(text, options.imports, eager=eager) for eager in (True, False) for text in texts
    ]


def _ending(status: int) -> str:
    return f"died by {signal_name(status)}" if status < 0 else f"ended with status {status}"


def _environment() -> dict[str, str]:
    """Return the environment variables: ours, without the recorder, and with this very package."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TORCHREEL")}
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [root, kept.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
