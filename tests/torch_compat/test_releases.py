"""Which release a version of torch is, and which releases have a name."""

import tomllib
from pathlib import Path

import pytest
import torch

from tests.compat.environments import VERSIONS
from torchreel.torch_compat.versions import releases
from torchreel.torch_compat.versions.names import TorchName, attachable, state_of
from torchreel.torch_compat.versions.releases import Release, of_version, parse

ROOT = Path(__file__).parents[2]
EVERYWHERE = TorchName("torch._ops", "OpOverload", "a test")
UNTIL_2_13 = TorchName("torch._ops", "no_such_name", "a test", until="2.13")
SINCE_2_14 = TorchName("torch._ops", "no_such_name", "a test", since="2.14")
MISSING = TorchName("torch._ops", "no_such_name", "a test")


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.13.0", Release(2, 13)),
        ("2.15.0+cu132", Release(2, 15)),
        ("2.14.1", Release(2, 14)),
        ("2.14", Release(2, 14)),
        ("2.16.0", None),
        ("2.11.0", None),
        ("3.0.0", None),
        ("2.15.0a0+git1234567", None),
        ("2.15.0.dev20261101+cpu", None),
        ("2.15.0rc2", None),
        ("", None),
        ("unknown", None),
    ],
)
def test_a_version_is_of_a_known_release_or_of_none(version: str, release: Release | None) -> None:
    found = of_version(version)
    assert (found.version, found.release, found.is_known) == (version, release, bool(release))


@pytest.mark.parametrize("text", ["2", "2.13.0", "2.14a0", "", "latest"])
def test_a_declaration_with_anything_but_a_release_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"reads like 2\.13"):
        parse(text)


@pytest.mark.parametrize(
    ("version", "everywhere", "until", "since"),
    [
        ("2.12.1", True, True, False),
        ("2.13.0", True, True, False),
        ("2.14.0", True, False, True),
        ("2.15.0", True, False, True),
        ("2.16.0", None, None, None),
        ("2.14.0a0", None, None, None),
    ],
)
def test_a_name_is_in_the_releases_that_it_declares(
    version: str, everywhere: bool | None, until: bool | None, since: bool | None
) -> None:
    torch = of_version(version)
    names = (EVERYWHERE, UNTIL_2_13, SINCE_2_14)
    assert tuple(name.is_in(torch) for name in names) == (everywhere, until, since)
    wanted = {name for name in names if name.is_in(torch) in (True, None)}
    assert attachable(names, torch) == wanted


def test_the_state_of_a_name() -> None:
    known, unknown = of_version("2.14.1"), of_version("2.16.0")
    assert state_of(EVERYWHERE, known) == state_of(EVERYWHERE, unknown) == "found"
    assert state_of(MISSING, known) == "missing"
    assert state_of(MISSING, unknown) == "not in this torch"
    assert state_of(UNTIL_2_13, known) == "other release"
    assert state_of(SINCE_2_14, known) == "missing"
    assert state_of(MISSING._replace(module="torch.no_such_module"), known) == "missing"


def test_the_releases_of_a_name_as_text() -> None:
    assert EVERYWHERE.releases() == ""
    assert UNTIL_2_13.releases() == f"{releases.KNOWN[0]} to 2.13"
    assert SINCE_2_14.releases() == "since 2.14"


def test_the_torch_of_this_process_is_known() -> None:
    assert releases.installed().version == torch.__version__
    assert releases.installed().is_known


def test_an_installation_leaves_a_torch_of_any_known_or_later_release_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (bound,) = [line for line in project["dependencies"] if line.startswith("torch")]
    assert bound == f"torch>={releases.KNOWN[0]}"


def test_each_known_release_has_an_environment() -> None:
    assert [parse(release) for release in VERSIONS] == list(releases.KNOWN)
    for release, version in VERSIONS.items():
        assert of_version(version).release == parse(release)
