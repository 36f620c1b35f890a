"""Runs `torch.utils.collect_env` on the machine on which a repro was checked.

Lives here: the call, and taking out what is nobody's business. It looks at this machine alone:
nothing of a store gets into it. Not here: what a recording knows of its own machine
(`failure_summary`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from functools import cache

from torchreel.recorder.redaction.level import Rules
from torchreel.recorder.redaction.redactor import Redactor

_SECONDS = 120.0  # it asks pip, conda, nvidia-smi and more, one after the other
_PROGRAM = "from torch.utils.collect_env import main; main()"
_REMOVED = re.compile(r"TORCHREEL|PYTHON")
_FIRST = "Collecting environment information..."
_PATH = re.compile(r"(?<![\w.])~?/(?!(?:usr|opt)/)[^\s'\",;]+")
# conda prints a channel, which may be a company's own, after the version.
_PACKAGE = re.compile(r"\[(pip3?|conda)\] +([\w.-]+)(?:==|\s+)(.+)")
_NOTHING = "Could not collect"
# It lists each package with 'torch' or 'numpy' in its name: of these, those that anybody can get.
_PUBLIC = re.compile(
    r"torch(?:vision|audio|text|ao|data|tune|titan|rec|metrics|-geometric|reel)?"
    r"|pytorch-(?:triton|lightning)[\w-]*|numpy|triton(?:-windows)?|optree|mypy(?:[_-]extensions)?"
    r"|flake8[\w-]*|onnx(?:runtime|script|-ir)?(?:-gpu)?|(?:nvidia|cuda|intel|onemkl)-[\w-]+"
    r"|cudatoolkit|mkl[\w-]*|magma-cuda\w*|tbb|dpcpp-cpp-rt|umf|tcmlib|impi-\w+|oneccl[\w-]*"
)


@cache
def collect_env(python: str = "") -> str:
    """Return the output of collect_env under `python` ('': this one), redacted; '' if it fails."""
    environment = {key: value for key, value in os.environ.items() if not _REMOVED.match(key)}
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    command = [python or sys.executable, "-I", "-c", _PROGRAM]
    with tempfile.TemporaryDirectory() as empty:
        try:
            ended = subprocess.run(
                command,
                cwd=empty,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
    return redacted(ended.stdout) if ended.returncode == 0 else ""


def redacted(text: str) -> str:
    """Return the text without paths, secrets, and packages that not everybody can get."""
    lines, left_out = [], 0
    for line in Redactor(Rules()).text(text.removeprefix(_FIRST)).strip().splitlines():
        package = _PACKAGE.fullmatch(line)
        if package is None or line.endswith(_NOTHING):
            lines.append(_PATH.sub("<path>", line))
        elif not _PUBLIC.fullmatch(package[2].lower()):
            left_out += 1
        elif package[1] == "conda":
            lines.append(f"[conda] {package[2]} {package[3].split()[0]}")
        else:
            lines.append(_PATH.sub("<path>", line))
    note = [f"({left_out} more packages are left out)"] if left_out else []
    return "\n".join([*lines, *note])
