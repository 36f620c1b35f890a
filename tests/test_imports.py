"""What an import may pull in: torch imports us, so we must be light and must not import it back."""

import graphlib
import json
import re
import subprocess
import sys

import grimp
import pytest

HEAVY = ["torch", "sqlalchemy", "alembic", "zstandard", "numpy", "psycopg", "typer"]


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


def test_the_command_line_loads_the_verbs_and_nothing_that_they_use() -> None:
    found = {name for name in _modules("import torchreel.cli") if name.startswith("torchreel.")}
    verbs = {name for name in found if re.fullmatch(r"torchreel\.commands\.\w+", name)}
    assert found - verbs == {"torchreel.cli", "torchreel.commands", "torchreel.errors"}
    assert {"torchreel.commands.views", "torchreel.commands.rendering"}.isdisjoint(verbs)
    assert _loaded("import torchreel.cli") == ["typer"]


def _modules(statement: str) -> list[str]:
    script = f"{statement}\nimport sys, json\nprint(json.dumps(list(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    found: list[str] = json.loads(result.stdout)
    return found


def _loaded(statement: str) -> list[str]:
    modules = _modules(statement)
    return [name for name in HEAVY if name in modules]


def test_no_imports_go_in_a_circle() -> None:
    """Late imports and those for types alone count; the package's own public names do not."""
    graph = grimp.build_graph("torchreel")
    inner = {module for module in graph.modules if module != "torchreel"}
    needs = {module: graph.find_modules_directly_imported_by(module) & inner for module in inner}
    assert len(needs) > 500
    assert list(graphlib.TopologicalSorter(needs).static_order())  # raises CycleError, with it
