"""The program's own part in a failure, where the place in torch only reports it.

Many failures leave torch at one place with the same words and are different bugs: torch says there
what it was given.  Lives here: telling such a place from one that fails by itself, by the shape of
what it executes, and what the traceback has of the program then.  Names of variables, lines and
folders do not count: they differ between two models with one bug.  Not here: which failures are
one (`grouping`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import dropwhile

from torchreel.analysis.triage.definitions import NO_DEFINITIONS, Definitions
from torchreel.analysis.triage.statements import statements, structure
from torchreel.releases.packages import needed_packages
from torchreel.store.failures.signature import Signature

_EXAMINED = 400_000
"""Characters of a traceback; the innermost frames come last."""
_FRAME = re.compile(r'^  File "(.*)", line (\d+), in (.+)$')
_HEADER = "Traceback (most recent call last):"
_MARKS = re.compile(r"^[\s~^]*$")
_DYNAMO = "torch._dynamo.exc."
_INTERNAL = "Internal"
"""Dynamo's name for a mistake of its own: its place tells what failed."""
_COMPILER = ("CppCompileError",)

# What only hands on: it raises an object that it was given, or one made of nothing but names, or it
# calls something with nothing but names.  The literal text of a message, a literal in an assertion,
# an operator: each of these is a decision that was made here.
_NAME = r"\*{0,2}[a-z_][\w.]*+(?:\s*+=\s*+[a-z_][\w.]*+)?"
_NAMES = rf"(?:{_NAME}(?:,\s*+{_NAME})*+,?\s*+)?"
_HANDS_ON = re.compile(
    rf"^(?:raise(?: [a-z_]\w*| [\w.]+\({_NAMES}\))?(?:\.with_traceback\(.*)?(?: from \w+)?"
    rf"|(?:return |\w+ = )?(?:await )?[\w.\[\]]+\({_NAMES}\)(?:\(\))?)(?:\s*#.*)?$"
)
_RAISES = re.compile(r"^raise\b")
_MOST_HANDS = 12
_TARGET = re.compile(r"\btarget[:=]\s*([\w.]+)")


@dataclass(frozen=True)
class ProgramPart:
    """The part that two failures of one signature share if they are one bug."""

    words: tuple[str, ...] = ()
    """The words of the traceback about it."""
    needs_graph: bool = False
    """True if neither the place nor that tells one bug from another."""
    is_reported: bool = False
    """True if the place in torch only reports what somebody else did."""
    tells_alone: bool = False
    """True if it tells one bug from another even where the signature names no place: it is the text
    of the program's functions, or the operator whose result generated code refused."""
    operator: str = ""
    """The operator that generated code called, where that raised: a place, and not enough of one,
    since it may have been given what is wrong."""


NO_PART = ProgramPart()
"""Of a failure whose place and words are enough."""


def program_part(
    signature: Signature,
    types: Sequence[str],
    message: str,
    traceback: str,
    definitions: Definitions = NO_DEFINITIONS,
) -> ProgramPart:
    """Return the program's part in a failure, by the types of its chain and the text of torch.

    The definitions are those that were recorded with it.
    """
    if signature.failure_class != "exception" or signature.exception_types == _COMPILER:
        return NO_PART
    frames = _frames_of(traceback, signature)
    own = _of_the_program(frames, definitions)
    if is_of_dynamo(types):
        words = (*own, *statements(message, definitions))
        return ProgramPart(words, needs_graph=not words, is_reported=True)
    if own or definitions.called or not signature.frames:
        has_text = bool(definitions.called_forms(_own_places(frames)))
        return ProgramPart(own, needs_graph=not own, is_reported=True, tells_alone=has_text)
    checked = _checked_operator(frames)
    if checked:
        return ProgramPart((checked,), tells_alone=True)
    return replace(_handing_on(frames, message), operator=_called_operator(signature, frames))


def is_of_dynamo(types: Sequence[str]) -> bool:
    """Return True if Dynamo says by the type that it stopped for what the program does."""
    reports = [name for name in types if name.startswith(_DYNAMO)]
    wrapped = any(name.removeprefix(_DYNAMO).startswith(_INTERNAL) for name in reports)
    return bool(reports) and not wrapped and types[0] not in _WRAPPING


_WRAPPING = frozenset({"torch._dynamo.exc.BackendCompilerFailed"})
"""The type that Dynamo puts around whatever a backend raises."""


# -- the traceback --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Frame:
    path: str
    number: int
    function: str
    line: str


@dataclass(frozen=True)
class _Frames:
    """The frames of one exception, the outermost first."""

    all: tuple[_Frame, ...] = ()

    @cached_property
    def root(self) -> str:
        """The folder that torch lies in, with its slash; no folder's name where it is not known."""
        for frame in self.all:
            before, found, _ = frame.path.rpartition("/torch/_")
            if found:
                return f"{before}/"
        return "\0"

    def is_in_torch(self, frame: _Frame) -> bool:
        """Return True for a frame of a file of torch's."""
        return frame.path.startswith(f"{self.root}torch/")


def _frames_of(text: str, signature: Signature) -> _Frames:
    """Return the frames of the exception whose place the signature names."""
    blocks = list(_blocks(text[-_EXAMINED:])) or [_Frames()]
    if not signature.frames:
        return blocks[0]
    wanted = signature.frames[0].rpartition(":")[2].rpartition(".")[2]
    for frames in blocks:
        in_torch = [frame for frame in frames.all if frames.is_in_torch(frame)]
        if any(frame.function == wanted for frame in in_torch[-3:]):
            return frames
    return blocks[-1]


def _blocks(text: str) -> Iterator[_Frames]:
    """Yield the frames of each exception of a formatted chain, the first cause first."""
    for part in text.split(_HEADER)[1:]:
        frames: list[_Frame] = []
        for line in part.split("\n")[1:]:
            if not line.startswith(" "):
                break
            match = _FRAME.match(line)
            if match is not None:
                frames.append(_Frame(match[1].replace("\\", "/"), int(match[2]), match[3], ""))
            elif frames and not frames[-1].line and not _MARKS.match(line):
                frames[-1] = replace(frames[-1], line=line.strip())
        if frames:
            yield _Frames(tuple(frames))


# -- what was handed on ---------------------------------------------------------------------------


def _handing_on(frames: _Frames, message: str) -> ProgramPart:
    """Return the innermost functions of torch, up to the first that does more than call another.

    If the innermost function does not raise the error itself, C++ code that it called did. The
    message of torch then names the call target.
    """
    last = frames.all[-1] if frames.all else None
    if last is None or not frames.is_in_torch(last) or not _HANDS_ON.match(last.line):
        return NO_PART
    places: list[str] = []
    for frame in frames.all[: -_MOST_HANDS - 1 : -1]:
        if not frames.is_in_torch(frame):
            break
        places.append(f"{frame.path.removeprefix(frames.root)}:{frame.function}")
        if not _HANDS_ON.match(frame.line):
            break
    if _RAISES.match(last.line):
        return ProgramPart(tuple(places))
    called = _TARGET.findall(message)
    return ProgramPart((*places, *called[:1]), needs_graph=not called, is_reported=True)


_CHECKED = re.compile(
    r"^assert_(?:size_stride|alignment)\(.*'(torch\.ops\.(?:aten|prims)\.[\w.]+)'\)$"
)


def _checked_operator(frames: _Frames) -> str:
    """Return the operator of torch's whose result generated code refused, '' for none.

    What the program's own operator returns is the program's.
    """
    found = _CHECKED.match(frames.all[-1].line) if frames.all else None
    return found[1] if found is not None and not frames.is_in_torch(frames.all[-1]) else ""


_CALLED = re.compile(r"^(?:\w+ = )?(torch\.ops\.(?:aten|prims)\.[\w.]+)\(")


def _called_operator(signature: Signature, frames: _Frames) -> str:
    """Return the operator of torch's in whose call generated code was left, '' for none."""
    if signature.stage != "run":
        return ""
    outside = [frame for frame in frames.all if not frames.is_in_torch(frame)]
    calls = (_CALLED.match(frame.line) for frame in outside if frame.function == "call")
    return next((call[1] for call in calls if call is not None), "")


def _own_places(frames: _Frames) -> list[tuple[str, int]]:
    """Return the files and lines of the program that the compiler called."""
    return [(frame.path, frame.number) for frame in _called(frames) if not _SITE.search(frame.path)]


def _called(frames: _Frames) -> list[_Frame]:
    inside = dropwhile(lambda frame: not frames.is_in_torch(frame), frames.all)
    return [frame for frame in inside if not _is_plumbing(frame, frames)]


def _of_the_program(frames: _Frames, definitions: Definitions) -> tuple[str, ...]:
    """Return the frames of the program that the compiler called: a backend, a pass, an operator.

    Of a function its name counts, what it executes, and the text of its definition and of what it
    uses.  Of a file the name counts where it is a package's, or no text was recorded.
    """
    called = _called(frames)
    # Torch may leave out the exception with the frames: what it called is known all the same.
    forms = definitions.called_forms(_own_places(frames))
    places = (
        frame.function if forms and not _SITE.search(frame.path) else _place(frame, frames)
        for frame in called
    )
    words = (
        f"{place}: {structure(frame.line)}" for place, frame in zip(places, called, strict=True)
    )
    return (*words, *forms)


def _place(frame: _Frame, frames: _Frames) -> str:
    """Return the name of a file, with that of a package around it, and of the function."""
    inner = frame.path.removeprefix(frames.root)
    file = inner if inner != frame.path else inner.rpartition("/")[2]
    return f"{file}:{frame.function}"


_STANDARD = re.compile(
    r"/lib/python3\.\d+/(?!site-packages/|dist-packages/)|/Lib/(?!site-packages/)"
)
_SITE = re.compile(r"/(?:site|dist)-packages/([\w.-]+)")


def _is_plumbing(frame: _Frame, frames: _Frames) -> bool:
    """Return True for a frame of torch, of what torch needs, of Python's, and of generated code."""
    if frames.is_in_torch(frame) or frame.path[:1] == "<" or _STANDARD.search(frame.path):
        return True
    package = _SITE.search(frame.path)
    if package is not None:
        return package[1].removesuffix(".py") in _packages_of_torch()
    return "/torchinductor_" in frame.path or _OWN in frame.path


_OWN = "/torchreel/"


@cache
def _packages_of_torch() -> frozenset[str]:
    """Return the packages that torch calls for itself: a frame of these is no program's."""
    return frozenset(needed_packages({"torch"})) | _OPTIONAL


_OPTIONAL = frozenset({"numpy", "triton", "torchreel"})
"""Packages that torch calls where they are installed, without requiring them."""
