"""An environment for each known release of torch, with torchreel in it.

Lives here: installing torchreel as a user would, and a look at whether the environment keeps its
torch.  Not here: the environment without it (`torchreel.releases.environments`), what runs in it
(`__main__`).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from torchreel.errors import EnvironmentFailed
from torchreel.releases import environments
from torchreel.torch_compat.versions.releases import KNOWN

__all__ = ["ROOT", "VERSIONS", "EnvironmentFailed", "python_of"]
ROOT = Path(__file__).parents[2]
VERSIONS = {str(release): environments.VERSIONS[str(release)] for release in KNOWN}
"""The version that stands for each release."""
_OF_TORCH = ("torch==", "triton==")


def python_of(release: str) -> Path:
    """Return the interpreter of a release's environment, which is made first if need be.

    Raises EnvironmentFailed if an installation fails or changes the torch that was there.
    """
    version = VERSIONS[release]
    python = environments.make(version, lambda text: print(text, flush=True))
    folder = environments.folder_of(version)
    constraints, stamp = folder / "constraints.txt", folder / "torchreel.stamp"
    if not stamp.is_file() or stamp.read_text() != _recipe():
        constraints.write_text(_constraints())
        # As a user would, into an environment that has a torch.
        environments.install(python, "-c", str(constraints), f"{ROOT}[test]")
        stamp.write_text(_recipe())
    # Which checkout it was that made the environment does not matter.
    environments.install(python, "-c", str(constraints), "--no-deps", "--editable", str(ROOT))
    _check(python, version)
    return python


def _recipe() -> str:
    """Return a digest of all that decides what is installed besides torch."""
    parts = (sys.version, _constraints(), (ROOT / "pyproject.toml").read_text())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _constraints() -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith(_OF_TORCH)) + "\n"


def _check(python: Path, version: str) -> None:
    program = "from importlib import metadata; print(metadata.version('torch'))"
    done = subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True)
    found = done.stdout.strip()
    if found.partition("+")[0] != version:
        raise EnvironmentFailed(
            f"torch {version} was installed, and {found} is there: installing torchreel changed it"
        )
