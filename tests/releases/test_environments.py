"""Environments for releases of torch: which are wanted, and what is said where none can be made."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from torchreel.errors import EnvironmentFailed, UsageError
from torchreel.releases import environments
from torchreel.releases.environments import VERSIONS, look_into, make, wanted_versions
from torchreel.torch_compat.versions.releases import KNOWN


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the user's, no settings of pip, and no network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    return tmp_path


def test_every_known_release_has_a_version() -> None:
    assert {str(release) for release in KNOWN} <= set(VERSIONS)
    assert all(text.startswith(f"{release}.") for release, text in VERSIONS.items())


@pytest.mark.parametrize(
    ("named", "since", "given", "wanted"),
    [
        ((), None, False, ("2.12.1", "2.13.0", "2.14.1", "2.15.0")),
        ((), None, True, ()),
        (("2.14", "2.12.0"), None, False, ("2.12.0", "2.14.1")),
        ((), "2.14", True, ("2.14.1", "2.15.0")),
        (("2.9",), "2.15", False, ("2.9.1", "2.15.0")),
        (("2.99",), None, False, ("2.99",)),
    ],
)
def test_the_wanted_versions(
    named: tuple[str, ...], since: str | None, given: bool, wanted: tuple[str, ...]
) -> None:
    assert wanted_versions(named, since, named=given) == wanted


@pytest.mark.parametrize("text", ["newest", "2", "2.14.0a1", "2.14; rm", "--pre"])
def test_other_text_is_no_release(text: str) -> None:
    with pytest.raises(UsageError, match=r"reads like 2\.14"):
        wanted_versions((text,), None)


@pytest.mark.slow
def test_an_environment_that_pip_cannot_make_leaves_nothing(cache: Path) -> None:
    said: list[str] = []
    with pytest.raises(EnvironmentFailed, match=r"No matching distribution .*torch==2\.14\.1"):
        make("2.14.1", said.append)
    assert "torch 2.14.1" in said[0]
    assert not environments.folder_of("2.14.1").exists()
    assert environments.found("2.14.1") is None


def test_an_environment_that_was_not_finished_is_none(cache: Path) -> None:
    folder = environments.folder_of("2.14.1")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    assert environments.found("2.14.1") is None
    (folder / "stamp").write_text("of something else")
    assert environments.found("2.14.1") is None


def test_an_environment_whose_torch_was_changed_is_none(cache: Path) -> None:
    folder = environments.folder_of("2.14.1")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "stamp").write_text(environments._recipe("2.14.1"))
    metadata = folder / "lib" / "python3.12" / "site-packages" / "torch-2.14.1.dist-info"
    metadata.mkdir(parents=True)
    assert environments.found("2.14.1") == folder / "bin" / "python"
    metadata.rename(metadata.with_name("torch-2.13.0.dist-info"))
    assert environments.found("2.14.1") is None


def test_an_interpreter_names_its_torch() -> None:
    found = look_into(sys.executable)
    assert found.torch == version("torch")
    assert {"torchreel", "sqlalchemy"} <= found.foreign
    assert not {"torch", "sympy", "numpy"} & found.foreign


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/true", "/bin/false"])
def test_what_is_no_python_is_refused(python: str) -> None:
    with pytest.raises(UsageError, match=r"is no (program|Python)"):
        look_into(python)


def test_a_python_without_torch_is_refused(tmp_path: Path) -> None:
    environments._call([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")])
    with pytest.raises(UsageError, match="has no torch"):
        look_into(tmp_path / "bare" / "bin" / "python")
