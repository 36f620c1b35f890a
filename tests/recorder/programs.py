"""Programs for the tests of the recorder, run in a process of their own under `run_recorded`."""

import sys
import textwrap
from pathlib import Path

from torchreel.recorder.launch import run_recorded

PRELUDE = "import os, sys, torch\nfrom torchreel.recorder import failing_open\n"

ENVIRONMENT = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # What comes from a cache goes through fewer stages.
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}


def run(program: str, store: Path) -> int:
    """Run the text of a program under the recorder, into `store`; its exit status."""
    return run_recorded([sys.executable, "-c", PRELUDE + textwrap.dedent(program)], store)
