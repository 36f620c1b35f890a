"""The entry point of the worker: `python -m torchreel.minifier.oracle.worker`."""

import sys
from pathlib import Path

from torchreel.minifier.oracle.worker.server import main

if __name__ == "__main__":
    Path.cwd()  # fails early, and clearly, where the directory is gone
    sys.exit(main())
