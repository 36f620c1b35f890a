"""An environment for each known release of torch, in the user's cache.

Lives here: making one as a user would, and a look at whether it keeps its torch.  Not here: what
runs in it (`__main__`).  The CUDA libraries that torch's wheels bring make 5.4 GB of each.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from platformdirs import user_cache_path

ROOT = Path(__file__).parents[2]
VERSIONS = {"2.12": "2.12.1", "2.13": "2.13.0", "2.14": "2.14.1", "2.15": "2.15.0"}
"""The version that stands for each release."""
LONGEST = 1_800
"""Seconds that an installation may take: three minutes, where 2.5 GB load in one."""
_OF_TORCH = ("torch==", "triton==")


class EnvironmentFailed(Exception):
    """An environment could not be made, or is not as it should be."""


def python_of(release: str) -> Path:
    """Return the interpreter of a release's environment, which is made first if need be.

    Raises EnvironmentFailed if an installation fails or changes the torch that was there.
    """
    version = VERSIONS[release]
    folder = user_cache_path("torchreel") / "compat" / version
    python, stamp = folder / "bin" / "python", folder / "stamp"
    if not stamp.is_file() or stamp.read_text() != _recipe(version):
        shutil.rmtree(folder, ignore_errors=True)
        print(f"making {folder}: torch {version} and its libraries, about 5.4 GB", flush=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        constraints = folder / "constraints.txt"
        constraints.write_text(_constraints())
        _install(python, constraints, f"torch=={version}")
        # As a user would, into an environment that has a torch.
        _install(python, constraints, f"{ROOT}[test]")
        stamp.write_text(_recipe(version))
    # Which checkout it was that made the environment does not matter.
    _install(python, folder / "constraints.txt", "--no-deps", "--editable", str(ROOT))
    _check(python, version)
    return python


def _recipe(version: str) -> str:
    """Return a digest of all that decides what is installed."""
    parts = (version, sys.version, _constraints(), (ROOT / "pyproject.toml").read_text())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _constraints() -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith(_OF_TORCH)) + "\n"


def _install(python: Path, constraints: Path, *what: str) -> None:
    _run([str(python), "-m", "pip", "install", "--quiet", "-c", str(constraints), *what])


def _check(python: Path, version: str) -> None:
    program = "from importlib import metadata; print(metadata.version('torch'))"
    found = _run([str(python), "-c", program]).strip()
    if found.partition("+")[0] != version:
        raise EnvironmentFailed(
            f"torch {version} was installed, and {found} is there: installing torchreel changed it"
        )


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, timeout=LONGEST
        ).stdout
    except subprocess.CalledProcessError as error:
        raise EnvironmentFailed(f"{' '.join(command)} ended with {error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailed(f"{' '.join(command)} took more than {LONGEST} s") from error
