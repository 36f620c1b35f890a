"""The page of events is made from the probes, and each kind says what it needs to."""

from pathlib import Path

from torchreel.recorder import catalogue, probes

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
