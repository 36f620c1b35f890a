"""The page of events is made from the probes, and each kind says what it needs to."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

from torchreel import recorder
from torchreel.recorder import catalogue, probes
from torchreel.recorder.attach import AttachPoint
from torchreel.recorder.kinds import Kind

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_probes_declare() -> None:
    assert (ROOT / "docs/events.md").read_text() == catalogue.page()


def test_every_kind_names_its_system_its_probe_and_a_known_attach_point() -> None:
    kinds = probes.event_kinds()
    assert len({kind.name for kind in kinds}) == len(kinds)
    known = set(probes.attach_points())
    for kind in kinds:
        assert 1 <= kind.system <= len(catalogue.SYSTEMS), kind.name
        assert kind.meaning.endswith("."), kind.name
        assert all(kind.fields.values()), kind.name
        if kind.probe != "watchdog":
            assert (ROOT / f"torchreel/recorder/probes/{kind.probe}.py").exists(), kind.name
            assert kind.points, kind.name
            assert set(kind.points) <= known, kind.name


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the recorder, by its name."""
    for file in sorted(Path(recorder.__path__[0]).rglob("*.py")):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        yield name.removesuffix(".__init__"), ast.parse(file.read_text())


def test_every_kind_and_every_attach_point_that_a_module_has_is_declared() -> None:
    kinds, points = set(probes.event_kinds()), set(probes.attach_points())
    seen = 0
    for name, _ in modules():
        for value in vars(importlib.import_module(name)).values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Kind):
                    assert item in kinds, (name, item.name)
                elif isinstance(item, AttachPoint):
                    assert item in points, (name, str(item))
                seen += isinstance(item, (Kind, AttachPoint))
    assert seen > len(kinds) + len(points)
    assert {probe.point for probe in probes.PROBES} <= points


def private_names(tree: ast.Module) -> Iterator[str]:
    """Names of torch's insides: imported, read off `torch`, or looked up among the modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node).partition("(")[0]
        elif isinstance(node, ast.Constant) and str(node.value).replace(".", "").isidentifier():
            yield str(node.value).rstrip(".")


def test_every_private_name_of_torch_is_an_attach_point() -> None:
    """So that `torchreel doctor` can say whether this torch has it."""
    known = {str(point) for point in probes.attach_points()}
    found = {
        (module, name)
        for module, tree in modules()
        for name in private_names(tree)
        if name.startswith("torch.")
        and not name.endswith(
            (".config", "._config")
        )  # documented, although their packages are private
        and any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
    }
    undeclared = {
        (module, name)
        for module, name in found
        if not any(
            # the point, a part of its path, or something that is read off it
            point == name or point.startswith(f"{name}.") or name.startswith(f"{point}.")
            for point in known
        )
    }
    assert undeclared == set()
    assert len(found) > 80


def test_doctor_looks_at_all_of_them() -> None:
    survey = dict(probes.survey())
    assert set(survey) == set(probes.attach_points())
    assert [str(point) for point, state in survey.items() if state == "missing"] == []
