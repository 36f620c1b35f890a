"""Torch's caches of compiled code, as a program finds them: off, empty, or filled by a run before.

Lives here: the environment of a program for each of them, and the run that fills them.  Called by
`corpus`, `exam` and `combinations`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

KINDS = ("off", "cold", "warm")

_JOB = "benchmark"
"""Names the profile of sizes that Dynamo keeps for the next run (PGO); unnamed, there is none."""


def environment(kind: str, folder: Path) -> dict[str, str]:
    """Variables with which a program uses caches in `folder`, or none ('off')."""
    if kind == "off":
        return {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    job = {"TORCH_COMPILE_JOB_ID": _JOB} if kind == "warm" else {}
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "caches"), **job}


def fill(
    kind: str, folder: Path, command: Sequence[str], given: Mapping[str, str], limit: float
) -> None:
    """Run a program without the recorder, where its caches are to be filled."""
    if kind == "warm":
        plain = {name: text for name, text in os.environ.items() if name != "TORCHREEL"}
        subprocess.run(
            command, env={**plain, **given, **environment(kind, folder)}, timeout=limit,
            capture_output=True, check=False,
        )  # fmt: skip
