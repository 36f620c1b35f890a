"""What an import may pull in: torch imports us, so we must be light and must not import it back."""

import json
import subprocess
import sys

import pytest

HEAVY = ["torch", "sqlalchemy", "alembic", "zstandard", "numpy", "typer"]


@pytest.mark.parametrize(
    "module",
    ["torchreel", "torchreel.errors", "torchreel.store", "torchreel.store.addressing"],
)
def test_importing_is_light(module: str) -> None:
    assert _loaded(f"import {module}") == []


def test_signatures_are_computed_without_torch_and_without_a_database() -> None:
    assert _loaded("from torchreel.store.failures.signature import from_exception") == []


def test_the_store_is_read_without_torch() -> None:
    loaded = _loaded("from torchreel.store import Store, queries")
    assert "torch" not in loaded
    assert "alembic" not in loaded


def _loaded(statement: str) -> list[str]:
    script = f"{statement}\nimport sys, json\n"
    script += f"print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    found: list[str] = json.loads(result.stdout)
    return found
