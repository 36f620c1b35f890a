"""Copies Inductor's probes of the processor into cache directories that begin empty.

Before its first kernel Inductor compiles and loads a probe for each vector extension that the
processor may have (`torch/_inductor/cpu_vec_isa.py`), which takes ten CPU seconds, and keeps the
libraries in its cache directory, under names made of their source and of the compiler's flags.  A
directory of our own that is used once would pay for that each time.  So they are made once for a
version of torch, in the user's cache, and copied; a name that Inductor does not look for harms
nobody.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

_PROBE = "from torchreel.torch_compat.inductor import probe_vector_isa as probe; probe()"
# The same where torchreel is not installed: what this can't do, Inductor does itself.
_PROBE_ALONE = "from torch._inductor.cpu_vec_isa import valid_vec_isa_list as probe; probe()"
_SECONDS = 300.0


def copy_probes(directory: Path, *, make: bool, python: str = "", torch: str = "") -> None:
    """Put the probes into an Inductor cache directory, which is made if it is missing.

    `make` them if there are none yet.  Where there are none after that, as without a C++ compiler,
    Inductor will look for itself.  `python` and `torch` are the interpreter of another environment
    and the version of its torch.
    """
    with suppress(OSError, subprocess.SubprocessError):
        kept = _probes(make, python, torch or version("torch"))
        shutil.copytree(kept, directory, dirs_exist_ok=True)


def _probes(make: bool, python: str, torch: str) -> Path:
    """Return the directory that holds them, filled the first time."""
    kept = user_cache_path("torchreel") / "vector_isa" / torch
    if kept.is_dir() or not make:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        _run(made, python)
        with suppress(OSError):  # somebody else was faster
            made.rename(kept)
    return kept


def _run(directory: Path, python: str) -> None:
    package = str(Path(__file__).resolve().parents[3])
    # Another environment's torch is to be found, not one that lies beside our package.
    paths = [] if python else [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    subprocess.run(
        [python or sys.executable, "-c", _PROBE_ALONE if python else _PROBE],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "TORCHINDUCTOR_CACHE_DIR": str(directory),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=True,
    )
