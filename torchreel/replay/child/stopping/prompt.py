"""A Python prompt at a stopped replay, with its live objects.

Lives here: the names that the prompt has, and the commands that go on from it.  Not here: when the
replay stops (`stops`).  It runs in the child, deep within the compiler, and holds the terminal.
"""

from __future__ import annotations

import code
import pydoc
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from torchreel import sandbox
from torchreel.escaping.characters import visible
from torchreel.recorder.event_log.failures import Stopped
from torchreel.replay.child.stopping.stops import Happened, Stops, recent
from torchreel.replay.compare.time_travel import BEFORE, ENTRIES, Target
from torchreel.torch_compat import stack_frames

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

HELP = """\
step(n=1)          go on for n events
next_stage(name)   go on to where the next stage begins, or the next of that name
at(n)              go on to event n of the recorded event log
go()               go on to the end
quit()             stop the replay here, and compare up to here (or Ctrl-D)
events(n=10)       the last n events that are compared, by their positions in the recorded event log
event              the last event and what it says
graph, inputs      what the replay began with (a module, or a frame's function), and its inputs
fx                 the graph module that is worked on here: the nearest on the stack
lowering           Inductor's GraphLowering, when there is one
tracer             Dynamo's InstructionTranslator, when there is one
shape_env          its ShapeEnv
fake_mode          its FakeTensorMode
stack()            the functions of torch that are under way, innermost last
help               this text; help(x) is Python's own"""


class _Go(SystemExit):
    """Leaves the prompt; the replay goes on."""


class _Help:
    def __repr__(self) -> str:
        return HELP

    def __call__(self, *args: object) -> None:
        if args:
            pydoc.help(*args)
        else:
            print(HELP)


class Prompt:
    """One prompt after the other, with the same names."""

    def __init__(self, objects: Callable[[], Mapping[str, Any]], recorder: Recorder) -> None:
        self._own, self._here = objects, recorder.spans.here
        self._names: dict[str, Any] = {"__name__": "__console__", "__doc__": None}
        if sandbox.is_confined():  # `help` could not start another program to turn pages
            pydoc.pager = pydoc.plainpager

    def ask(self, stops: Stops, what: str) -> None:
        """Hold a prompt; raises Stopped when the replay is to end here."""
        with self._here.unrecorded():
            self._interact(stops, what)

    def _interact(self, stops: Stops, what: str) -> None:
        frames = list(_frames(sys._getframe()))
        self._names |= self._objects(frames) | _commands(stops, frames)
        console = code.InteractiveConsole(self._names, "<replay>")
        log = _EventLog(stops)
        where = f"at the beginning of {what}, after" if what else "after"
        more = "" if stops.moved else "; 'help' lists the commands"
        banner = visible(f"stopped {where} {log.where()}{more}")
        try:
            console.interact(banner, exitmsg="")
        except _Go:
            return
        except SystemExit:
            pass
        raise Stopped

    def _objects(self, frames: list[FrameType]) -> dict[str, Any]:
        return {
            **self._own(),
            "help": _Help(),
            "fx": stack_frames.nearest_graph(frames),
            "lowering": stack_frames.nearest_lowering(frames),
            "tracer": stack_frames.nearest_tracer(frames),
        }


def _commands(stops: Stops, frames: list[FrameType]) -> dict[str, Any]:
    log = _EventLog(stops)

    def step(n: int = 1) -> None:
        stops.go(steps=n)
        raise _Go

    def next_stage(name: str = "*") -> None:
        if name not in ("*", *ENTRIES["frame"]):
            print(f"there is no stage {name!r}: {', '.join(ENTRIES['frame'])}")
            return
        stops.go(stage=(name, ""))
        raise _Go

    def at(n: int) -> None:
        target = log.target(n)
        if target is None:
            print(f"event {n} is behind, or is not compared")
            return
        stops.go(at=target)
        raise _Go

    def go() -> None:
        stops.go()
        raise _Go

    def quit() -> None:
        raise SystemExit

    def events(n: int = BEFORE) -> None:
        for event in recent(stops, n):
            print(visible(log.line(event)))

    def stack() -> None:
        for frame in reversed(frames):
            print(f"{frame.f_code.co_qualname}  ({frame.f_code.co_filename}:{frame.f_lineno})")

    named = {f.__name__: f for f in (step, next_stage, at, go, quit, events, stack)}
    return {**named, "exit": quit, "event": _Event(log, stops)}


class _Event:
    """The last event, printed when its name is typed."""

    def __init__(self, log: _EventLog, stops: Stops) -> None:
        self._event = stops.happened[-1] if stops.happened else None
        self._event_log = log

    def __repr__(self) -> str:
        if self._event is None:
            return "nothing has happened yet"
        data = self._event.data()
        lines = [f"  {k}: {v!s:.300}" for k, v in data.items()] if isinstance(data, dict) else []
        return "\n".join(map(visible, [self._event_log.line(self._event), *lines]))


class _EventLog:
    """The recorded event log beside the replay."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops
        self._lanes = stops.sought.event_log or {}

    def line(self, event: Happened) -> str:
        """Return an event, by its position in the recorded event log."""
        lines = self._lanes.get(event.lane, ())
        if event.number > len(lines):
            return f"(not recorded) {event}"
        seq, what = lines[event.number - 1]
        other = "" if what == str(event) else f", where {what} was recorded"
        return f"@{seq} {event}{other}"

    def where(self) -> str:
        """Return a line for the last event of the replay; 'nothing' before the first."""
        happened = self._stops.happened
        return self.line(happened[-1]) if happened else "nothing"

    def target(self, seq: int) -> Target | None:
        """Return a recorded event that is to come; None for any other."""
        numbers: dict[str, int] = {}
        for event in self._stops.happened:
            numbers[event.lane] = event.number
        for lane, lines in self._lanes.items():
            for number, (there, _) in enumerate(lines, 1):
                if there == seq and number > numbers.get(lane, 0):
                    return Target(lane, number, seq)
        return None


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the stack from here outwards, without our own functions."""
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith(("torchreel.", "__main__")):
            yield frame
        frame = frame.f_back
