"""Programs for the tests of the recorder, run in a process of their own under `run_recorded`."""

import sys
import textwrap
from pathlib import Path

from torchreel.recorder.launch import run_recorded

PRELUDE = "import os, sys, torch\nfrom torchreel.recorder import guard\n"

ENVIRONMENT = {
    # Precompiling headers takes tens of seconds in a new cache.
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # What comes from a cache goes through fewer stages.
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
}


def run(program: str, store: Path) -> int:
    """Run the text of a program under the recorder, into `store`; its exit status."""
    return run_recorded([sys.executable, "-c", PRELUDE + textwrap.dedent(program)], store)
