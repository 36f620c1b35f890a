"""Attaching: now, on import, and not at all."""

import importlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from torchreel.recorder import attach, probes
from torchreel.recorder.attach import PASS, Attachment, AttachPoint, Call, Probe, Tap, Visit
from torchreel.recorder.failing_open import losses
from torchreel.recorder.recorder import Recorder, RecordingOptions

MODULE = "reel_attached"
SOURCE = """
def double(x, *, times=2):
    "Doubles."
    if x is None:
        raise ValueError("nothing to double")
    return x * times

class Box:
    def open(self):
        return "open"
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that is not imported yet, and a recorder that records."""
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    losses.reset()
    attach.activate(Recorder(RecordingOptions(str(tmp_path / "run.db"))))
    yield
    attach.activate(None)
    sys.modules.pop(MODULE, None)


def watch(qualname: str, seen: list[object]) -> Probe:
    def visit(recorder: Recorder, call: Call) -> Visit:
        seen.append(call.args)
        outcome = yield
        seen.append(outcome.error or outcome.result)

    return Probe(AttachPoint(MODULE, qualname, "a test"), visit)


def test_every_attach_point_is_in_this_torch() -> None:
    assert [str(point) for point, state in probes.survey() if state == "missing"] == []


@pytest.mark.parametrize(
    ("version", "attached", "lost"),
    [
        ("2.13.0", ["double", "open"], []),
        ("2.14.1", ["double"], [f"{MODULE}.later"]),
        ("2.16.0", ["double", "open"], []),
    ],
)
def test_a_missing_name_is_lost_only_where_its_release_has_it(
    version: str, attached: list[str], lost: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said of a name of other releases, nor in a release that nobody knows yet."""
    monkeypatch.setattr(torch.version, "__version__", version)
    points = (
        AttachPoint(MODULE, "double", "a test"),
        AttachPoint(MODULE, "Box.open", "a test", until="2.13"),
        AttachPoint(MODULE, "later", "a test", since="2.14"),
    )
    seen: list[str] = []

    def visit(recorder: Recorder, call: Call) -> Visit:
        seen.append(call.function.__name__)
        yield

    attachment = Attachment([Probe(point, visit) for point in points])
    attachment.attach()
    module = importlib.import_module(MODULE)
    assert (module.double(2), module.Box().open()) == (4, "open")
    attachment.detach()
    assert seen == attached
    assert [place for _, place, *_ in losses.snapshot()] == lost


def test_a_module_is_patched_when_it_is_imported() -> None:
    seen: list[object] = []
    attachment = Attachment([watch("double", seen), watch("Box.open", seen)])
    before = list(sys.meta_path)
    attachment.attach()
    assert MODULE not in sys.modules
    module = importlib.import_module(MODULE)
    assert module.double(4, times=3) == 12
    assert module.Box().open() == "open"
    assert seen[0] == (4,)
    assert seen[1] == 12
    assert seen[3] == "open"
    assert (module.double.__name__, module.double.__doc__) == ("double", "Doubles.")
    assert "exec_module" not in vars(module.__spec__.loader)
    assert sys.meta_path == before
    attachment.detach()
    assert not hasattr(module.double, "__wrapped__")
    assert not hasattr(module.Box.open, "__wrapped__")


def test_the_traceback_of_an_import_that_fails_is_the_programs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reel_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    point = AttachPoint("reel_broken", "double", "a test")
    attachment = Attachment([Probe(point, watch("double", []).visit)])
    attachment.attach()
    with pytest.raises(ZeroDivisionError) as raised:
        importlib.import_module("reel_broken")
    attachment.detach()
    files = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert files[-1] == str(tmp_path / "reel_broken.py")
    assert not any("torchreel/recorder" in file for file in files)


def test_two_recorders_may_wait_for_one_module() -> None:
    first: list[object] = []
    attachments = [Attachment([watch("double", seen)]) for seen in (first, [])]
    before = list(sys.meta_path)
    for attachment in attachments:
        attachment.attach()
    module = importlib.import_module(MODULE)
    assert module.double(4) == 8
    assert first == [(4,), 8]
    for attachment in attachments:
        attachment.detach()
    assert not hasattr(module.double, "__wrapped__")
    assert sys.meta_path == before


def test_a_module_that_is_imported_already_is_patched_at_once() -> None:
    module = importlib.import_module(MODULE)
    seen: list[object] = []
    attachment = Attachment([watch("double", seen)])
    attachment.attach()
    module.double(1)
    attachment.detach()
    module.double(2)
    assert seen == [(1,), 2]


def test_two_probes_may_watch_one_function() -> None:
    first: list[object] = []
    second: list[object] = []
    module = importlib.import_module(MODULE)
    original = module.double
    attachment = Attachment([watch("double", first), watch("double", second)])
    attachment.attach()
    other = Attachment([watch("double", [])])
    other.attach()  # of a second recorder: the first one records
    with pytest.raises(ValueError, match="nothing") as caught:
        module.double(None)
    assert [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)][1:] == [
        "double"
    ]
    assert first == second == [(None,), caught.value]
    other.detach()
    attachment.detach()
    assert module.double is original


def test_a_missing_attach_point_switches_off_only_itself() -> None:
    seen: list[object] = []
    attachment = Attachment([watch("gone", seen), watch("double", seen)])
    attachment.attach()
    module = importlib.import_module(MODULE)
    assert module.double(1) == 2
    assert seen == [(1,), 2]
    assert [place for _, place, _, _ in losses.snapshot()] == [f"{MODULE}.gone"]
    attachment.detach()


def test_our_frames_are_not_in_the_traceback() -> None:
    seen: list[object] = []
    attachment = Attachment([watch("double", seen)])
    attachment.attach()
    module = importlib.import_module(MODULE)
    with pytest.raises(ValueError, match="nothing") as caught:
        module.double(None)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert attach.__file__ not in files
    assert len(files) == 2
    assert seen[1] is caught.value
    attachment.detach()


def test_a_tap_looks_only_at_the_calls_that_it_does_not_pass() -> None:
    seen: list[object] = []

    def before(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        return PASS if kwargs else "looked"

    def after(
        recorder: Recorder, args: Any, kwargs: Any, token: Any, result: Any, error: Any
    ) -> None:
        seen.append((token, result, type(error)))

    Attachment([Tap(AttachPoint(MODULE, "double", "a test"), after, before)]).attach()
    double = importlib.import_module(MODULE).double
    assert (double(4), double(4, times=3)) == (8, 12)
    for arguments in ({}, {"times": 2}):
        with pytest.raises(ValueError, match="nothing") as caught:
            double(None, **arguments)
        assert [frame.name for frame in traceback.extract_tb(caught.tb)][1:] == ["double"]
    assert seen == [("looked", 8, type(None)), ("looked", None, ValueError)]


def test_nothing_is_visited_when_nobody_records() -> None:
    seen: list[object] = []
    attachment = Attachment([watch("double", seen)])
    attachment.attach()
    attach.activate(None)
    assert importlib.import_module(MODULE).double(1) == 2
    assert seen == []
    attachment.detach()


def test_a_wrapper_of_somebody_else_on_top_is_left_there() -> None:
    attachment = Attachment([watch("double", [])])
    attachment.attach()
    module = importlib.import_module(MODULE)
    ours = module.double

    def theirs(x: int) -> object:
        return ours(x)

    module.double = theirs
    attachment.detach()
    assert module.double is theirs
    attach.activate(None)
    assert module.double(2) == 4
