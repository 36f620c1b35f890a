"""The page of events is made from the probes, and each kind says what it needs to."""

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec import inspect

from torchreel import events, recorder
from torchreel.events.documentation import meaning, meanings_of_fields
from torchreel.events.event import EventType
from torchreel.events.reading import event_types
from torchreel.recorder import catalogue, probes
from torchreel.recorder.attach import AttachPoint

ROOT = Path(__file__).parents[2]


def types_of_events() -> dict[str, type[EventType]]:
    """The types of events by kind, without those that another test has made."""
    here = events.__name__
    return {k: found for k, found in event_types().items() if found.__module__.startswith(here)}


def test_the_page_is_what_the_probes_declare() -> None:
    assert (ROOT / "docs/events.md").read_text() == catalogue.page()


def test_every_type_of_event_is_documented_and_has_a_system_and_a_known_attach_point() -> None:
    noted = probes.noted_events()
    assert len({event_type.kind for event_type in noted}) == len(noted) > 100
    families = [family for each in catalogue.SYSTEMS.values() for family in each]
    known = set(probes.attach_points())
    for event_type, where in noted.items():
        assert families.count(event_type.kind.partition(".")[0]) == 1, event_type
        assert meaning(event_type).endswith("."), event_type
        assert all(text.endswith(".") for text in meanings_of_fields(event_type).values())
        if where.probe != "watchdog":
            assert where.points, event_type
            assert set(where.points) <= known, event_type


def test_every_type_of_event_is_noted_by_a_probe() -> None:
    defined = set()
    for file in Path(events.__path__[0]).glob("*.py"):
        module = importlib.import_module(f"torchreel.events.{file.stem}")
        defined |= {
            found
            for found in vars(module).values()
            if isinstance(found, type) and issubclass(found, EventType) and hasattr(found, "kind")
        }
    assert defined == set(probes.noted_events())
    assert defined == set(types_of_events().values())


def imported_from(package: str, file: Path) -> set[str]:
    """The modules of a package that a file imports, or imports from."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            found.add((node.module or "").removeprefix(f"{package}."))
    return found


def test_every_module_of_probes_is_in_the_list_or_used_by_one_that_is() -> None:
    files = {file.stem: file for file in Path(probes.__path__[0]).glob("[!_]*.py")}
    reached, waiting = set[str](), {m.__name__.rpartition(".")[2] for m in probes._MODULES}
    while waiting:
        reached |= waiting
        used = {n for name in waiting for n in imported_from(probes.__name__, files[name])}
        waiting = used - reached
    assert files.keys() - reached == set(), "not in _MODULES of recorder/probes/__init__.py"
    for name in files:
        made = getattr(importlib.import_module(f"{probes.__name__}.{name}"), "PROBES", ())
        assert set(made) <= set(probes.PROBES), name


def test_every_module_of_events_is_read() -> None:
    """A module that nobody imports has no types for whoever reads a store."""
    folder = Path(events.__path__[0])
    declaring = {
        file.stem
        for file in folder.glob("*.py")
        if re.search(r"^class \w+\((\w*Event|EventType),", file.read_text(), re.MULTILINE)
    }
    read = imported_from("torchreel.events", folder / "reading.py")
    assert declaring - {"event"} - read == set(), "not imported by events/reading.py"


JSON = (
    inspect.StrType, inspect.BoolType, inspect.IntType, inspect.FloatType, inspect.NoneType,
    inspect.AnyType, inspect.ListType, inspect.VarTupleType, inspect.DictType, inspect.UnionType,
)  # fmt: skip


def parts(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The type, and those that it is made of."""
    yield kind
    for name in ("item_type", "key_type", "value_type"):
        yield from parts(getattr(kind, name)) if hasattr(kind, name) else ()
    for one in getattr(kind, "types", ()):
        yield from parts(one)


def without_json(found: type[EventType]) -> list[str]:
    """The fields of a type of event that a store cannot give back as they were."""
    described = inspect.type_info(found)
    assert isinstance(described, inspect.StructType)
    return [
        field.name
        for field in described.fields
        for part in parts(field.type)
        if not isinstance(part, JSON)
        or (isinstance(part, inspect.DictType) and not isinstance(part.key_type, inspect.StrType))
    ]


@pytest.mark.parametrize("kind", sorted(types_of_events()))
def test_a_field_has_a_type_that_json_has(kind: str) -> None:
    """Text, numbers, truth values, lists and mappings from text of these, and what may be any."""
    assert without_json(event_types()[kind]) == []


def test_what_json_has_not_is_found() -> None:
    class Odd(EventType, frozen=True):
        pairs: Mapping[tuple[str, int], int]
        path: Path | None
        fine: list[str | int] | None

    assert set(without_json(Odd)) == {"pairs", "path"}


def test_a_family_that_is_in_no_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    less = {name: found for name, found in catalogue.SYSTEMS.items() if name != "Guards"}
    monkeypatch.setattr(catalogue, "SYSTEMS", less)
    with pytest.raises(ValueError, match=r"catalogue\.py lacks: guards"):
        catalogue.page()


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the recorder, by its name."""
    for file in sorted(Path(recorder.__path__[0]).rglob("*.py")):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        yield name.removesuffix(".__init__"), ast.parse(file.read_text())


def test_every_attach_point_that_a_module_has_is_declared() -> None:
    points = set(probes.attach_points())
    seen = 0
    for name, _ in modules():
        for value in vars(importlib.import_module(name)).values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, AttachPoint):
                    assert item in points, (name, str(item))
                    seen += 1
    assert seen > len(points)
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
