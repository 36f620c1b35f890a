"""Attaches the recorder to torch: replaces functions when their modules are imported.

Lives here: `AttachPoint`, the wrapper around a function, the import hook, and their undoing.  Not
here: what is looked at (`probes`).  A wrapper calls the original exactly once, with the arguments
untouched and outside of the guard, and takes its own frame out of the traceback of an exception.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from torchreel.recorder import failing_open
from torchreel.recorder.failing_open import fail_open
from torchreel.recorder.skipped_frames import hide
from torchreel.torch_compat.patching import disguise, hide_frame
from torchreel.torch_compat.versions import releases
from torchreel.torch_compat.versions.names import TorchName, attachable, resolve

if TYPE_CHECKING:
    from torchreel.events.event import EventType
    from torchreel.recorder.recorder import Recorder


AttachPoint = TorchName
"""A private name of torch that a probe needs, and what for."""
Events: TypeAlias = "Mapping[type[EventType], tuple[AttachPoint, ...]]"
"""The types of events that a probe notes, and the attach points that they come from."""


class Call(NamedTuple):
    """One call of the function that a probe stands in front of."""

    function: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, position: int, name: str) -> Any:
        """Return an argument, however it was passed; None when it was left out."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name)


class CallOutcome(NamedTuple):
    """The result or the error of a call; `error` is None if it returned `result`."""

    result: Any = None
    error: BaseException | None = None


Visit = Generator[None, CallOutcome, None]
"""A running probe: it runs to its `yield` before the call, and from there with the outcome."""


class Probe(NamedTuple):
    """A function of torch, and what to do around each call of it.

    `skips` names the keyword, if there is one, by which the function is told how many frames of the
    stack above it to leave out: ours is one more.  `flight`: see `Tap`.
    """

    point: AttachPoint
    visit: Callable[[Recorder, Call], Visit]
    skips: str | None = None
    flight: bool = True


PASS = object()
"""Returned by the `before` of a `Tap` to skip a call."""


class Tap(NamedTuple):
    """A function of torch that a compile calls hundreds of times, and a cheap look at each call.

    `before` returns what `after` needs of the time before the call, or `PASS`: then `after` is not
    called.  `after` gets the result, or None and the exception.  `flight`: whether it is there in
    flight mode too, where every call counts; what follows from a checkpoint, and comes again in a
    replay from there, is not.
    """

    point: AttachPoint
    after: Callable[
        [Recorder, tuple[Any, ...], dict[str, Any], Any, Any, BaseException | None], None
    ]
    before: Callable[[Recorder, tuple[Any, ...], dict[str, Any]], Any] | None = None
    flight: bool = True


class Printer(NamedTuple):
    """A function of torch that prints something, and that torch calls because we listen.

    What it does, and what it raises, is ours to have brought about: `instead` gives the text to put
    in its place, or None where it can do no harm or is asked for by others as well.
    """

    point: AttachPoint
    instead: Callable[[tuple[Any, ...]], str | None]
    flight: bool = True


class Override(NamedTuple):
    """A thing of torch that is no function, and what makes the one that stands in its place."""

    point: AttachPoint
    make: Callable[[Any], Any]
    flight: bool = True


AnyProbe = Probe | Tap | Printer | Override
_active: Recorder | None = None


def active() -> Recorder | None:
    """Return the recorder that records now, if any."""
    return _active


def activate(recorder: Recorder | None) -> None:
    """Make `recorder` the one that all probes write to."""
    global _active
    _active = recorder


class _Hook(fail_open):
    """A guarded piece of our own code: what it does to the pipeline is not recorded."""

    __slots__ = ("_here", "_inside")

    def __init__(self, recorder: Recorder, place: str) -> None:
        super().__init__(place)
        self._here = recorder.spans.here

    def __enter__(self) -> Self:
        self._inside, self._here.inside = self._here.inside, True
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._here.inside = self._inside
        return super().__exit__(kind, error, traceback)


def wrap(original: Any, probe: AnyProbe) -> Any:
    """Return `original` (a function, or a static or class method) with the probe around it, or what
    replaces it.
    """
    if isinstance(probe, Override):
        return probe.make(original)
    if isinstance(original, (staticmethod, classmethod)):
        return type(original)(wrap(original.__func__, probe))
    if isinstance(probe, Printer):
        around = _printer(original, probe)
    else:
        around = _wrap(original, probe) if isinstance(probe, Probe) else _tap(original, probe)
    wrapper: Any = functools.wraps(original)(around)
    disguise(wrapper, original)
    hide(wrapper)
    wrapper.__torchreel__ = True
    return wrapper


def _printer(original: Callable[..., Any], printer: Printer) -> Callable[..., Any]:
    place, instead = str(printer.point), printer.instead

    def printed(*args: Any, **kwargs: Any) -> Any:
        recorder = _active
        if recorder is None:
            return original(*args, **kwargs)
        text: str | None = ""
        with _Hook(recorder, place):
            failing_open.check(place)
            text = instead(args)
        return original(*args, **kwargs) if text is None else text

    return printed


def _tap(original: Callable[..., Any], tap: Tap) -> Callable[..., Any]:
    place, before, after = str(tap.point), tap.before, tap.after

    def tapped(*args: Any, **kwargs: Any) -> Any:
        recorder = _active
        if recorder is None or recorder.spans.here.inside:
            return original(*args, **kwargs)
        try:
            token = None
            if before is not None:
                with _Hook(recorder, place):
                    failing_open.check(place)
                    token = before(recorder, args, kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                with _Hook(recorder, place):
                    failing_open.check(place)
                    recorder.saw(error)
                    if token is not PASS:
                        after(recorder, args, kwargs, token, None, error)
                hide_frame(error)
                raise
            if token is PASS:
                return result
            with _Hook(recorder, place):
                failing_open.check(place)
                after(recorder, args, kwargs, token, result, None)
            return result
        except BaseException:
            # It may have come as a hook began or ended.
            recorder.spans.here.inside = False
            raise

    return tapped


def _wrap(original: Callable[..., Any], probe: Probe) -> Callable[..., Any]:
    place, skips = str(probe.point), probe.skips or ""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = _active
        if recorder is None or recorder.busy:
            return original(*args, **kwargs)
        depth = len(recorder.spans.here.stack)
        try:
            visit = _enter(recorder, probe, place, Call(original, args, kwargs))
            if type(kwargs.get(skips)) is int:
                kwargs = {**kwargs, skips: kwargs[skips] + 1}
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                with _Hook(recorder, place):
                    recorder.saw(error)
                _leave(recorder, visit, place, CallOutcome(error=error))
                hide_frame(error)
                raise
            _leave(recorder, visit, place, CallOutcome(result))
            unwind(recorder, depth, place, None)
            return result
        except BaseException as error:
            # Where the program's own came while a hook ran: an alarm, Ctrl-C.
            unwind(recorder, depth, place, error)
            raise

    return wrapper


def _enter(recorder: Recorder, probe: Probe, place: str, call: Call) -> Visit | None:
    with _Hook(recorder, place):
        failing_open.check(place)
        visit = probe.visit(recorder, call)
        next(visit)
        return visit
    return None


def _leave(recorder: Recorder, visit: Visit | None, place: str, outcome: CallOutcome) -> None:
    with _Hook(recorder, place):
        failing_open.check(place)
        try:
            if visit is not None:
                visit.send(outcome)
        except StopIteration:
            pass


def unwind(recorder: Recorder, depth: int, place: str, error: BaseException | None) -> None:
    """Close what was left open by a probe that failed half-way, or by an exception that it let by.

    For one that was not inside of a hook when it began, with so many spans open.
    """
    here = recorder.spans.here
    here.inside = False
    left = here.stack[depth:]
    if not left:
        return
    try:
        for span in reversed(left):
            with fail_open(place):
                recorder.leave(span, error)
    finally:
        recorder.spans.pop(left[0])


class Attachment:
    """Probes put in place, now or when their modules are imported; `detach` undoes it all.

    Those are left out whose function the installed torch is known not to have.
    """

    def __init__(
        self, probes: Sequence[AnyProbe], on_import: Callable[[str], None] = lambda name: None
    ) -> None:
        self._torch = releases.installed()
        points = attachable((probe.point for probe in probes), self._torch)
        probes = [probe for probe in probes if probe.point in points]
        self._waiting = {
            module: [probe for probe in probes if probe.point.module == module]
            for module in dict.fromkeys(probe.point.module for probe in probes)
        }
        self._on_import = on_import
        self._undo: list[tuple[object, str, object, object]] = []
        self._finder = _Finder(self)
        self._lock = threading.RLock()

    def attach(self) -> None:
        """Patch what is imported; wait for the rest."""
        for name in list(self._waiting):
            if _is_loaded(name):
                self.imported(name)
        if self._waiting:
            sys.meta_path.insert(0, self._finder)

    def is_waiting_for(self, name: str) -> bool:
        """Return True if a module of that name, not yet imported, has attach points."""
        return name in self._waiting

    def imported(self, name: str) -> None:
        """Patch a module that is there now."""
        with self._lock:
            probes = self._waiting.pop(name, [])
        for probe in probes:
            with fail_open(str(probe.point)):
                self._patch(probe)
        with fail_open("attach"):
            self._on_import(name)
        if not self._waiting:
            self._remove_finder()

    def _patch(self, probe: AnyProbe) -> None:
        try:
            owner, name = resolve(probe.point)
        except AttributeError:
            if self._torch.is_known:
                raise
            return  # `torchreel doctor` lists what an unknown release does not have
        original = vars(owner)[name]
        if getattr(getattr(original, "__func__", original), "__torchreel__", False) and not any(
            owner is patched and name == known for patched, known, *_ in self._undo
        ):
            return  # another attachment's; one probe more of ours goes around the first
        wrapper = wrap(original, probe)
        setattr(owner, name, wrapper)
        self._undo.append((owner, name, original, wrapper))

    def detach(self) -> None:
        """Put back every function that is still ours."""
        self._remove_finder()
        for owner, name, original, wrapper in reversed(self._undo):
            if vars(owner).get(name) is wrapper:
                setattr(owner, name, original)
        self._undo = []
        self._waiting = {}

    def _remove_finder(self) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)


def spec_after(
    finder: MetaPathFinder, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """Return the spec of a module from the finders after `finder` on `sys.meta_path`.

    Two finders that ask each other would never end.
    """
    found = sys.meta_path
    for other in found[found.index(finder) + 1 :] if finder in found else ():
        find = getattr(other, "find_spec", None)
        spec: ModuleSpec | None = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


class _Finder(MetaPathFinder):
    """Finds nothing itself: lets the others find, and patches the module once it has run."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self._attachment.is_waiting_for(name):
            return None
        spec = spec_after(self, name, path, target)
        if spec is not None:
            with fail_open(name):
                self._watch(spec)
        return spec

    def _watch(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # perhaps another recorder's, around this one
            try:
                original(module)
            except BaseException as error:
                hide_frame(error)
                raise
            self._attachment.imported(module.__name__)

        # On the instance, for this one import: the loader itself stays what it is.
        loader.exec_module = exec_module


def _is_loaded(name: str) -> bool:
    """Return True if a module is imported, and not just being imported further up the stack."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)
