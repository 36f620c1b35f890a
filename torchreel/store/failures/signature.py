"""Computes and compares signatures: what makes two failures "the same bug".

The recorder computes a signature from the exception it sees, the minifier from what its oracle's
child sees; a reduction step counts only if the two match. So everything that depends on the size or
the numbering of a graph has to be gone from a signature, and nothing that tells bugs apart. How an
exception's text is stripped is in `normalised_messages`, how an exception becomes data in `raised`;
torch is not imported here: exceptions are known by the names of their types and by tracebacks.
"""

import re
import signal as signals
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from typing import Literal, cast

from torchreel.errors import DamagedStore
from torchreel.patterns import lazy_text
from torchreel.store.documents.jsontypes import Json, canonical_json, digest_of
from torchreel.store.failures.normalised_messages import (
    is_compiler_output,
    normalise_message,
    strip_hashes,
    without_homes_of_objects,
    without_numbers_of_names,
)
from torchreel.store.failures.raised import Raised, exception_chain, raised_chain

__all__ = [
    "Signature",
    "crash_message",
    "crash_signature",
    "exception_chain",
    "from_chain",
    "from_exception",
    "hang_signature",
    "lowered_when_it_crashed",
    "memory_signature",
    "normalise_message",
    "predicate_signature",
    "script_signature",
    "telling_frames",
    "wrong_result_signature",
]

FailureClass = Literal[
    "exception", "wrong_result", "crash", "hang", "memory", "predicate", "script"
]
CLASSES: tuple[FailureClass, ...] = (
    "exception", "wrong_result", "crash", "hang", "memory", "predicate", "script",
)  # fmt: skip
DOUBLE_BACKWARD = "double backward"
"""The partition of a failure where a compiled backward was to be differentiated again."""
REPEATED_BACKWARD = "repeated backward"
"""The partition of a failure where a backward was to keep its graph, and had given buffers away."""
NEEDS_FRAME = ("dynamo", "guards", "")
"""The stages that belong to Dynamo: their input is a Python frame, not a graph."""
ASKED: tuple[FailureClass, ...] = ("predicate", "script")
"""Classes of failures that a user's question defines. No recording and no other search finds them.
"""

# Types that only wrap another exception on its way through Dynamo: the same failure comes without
# them, or with others, when the backend is called directly (_dynamo/exc.py, _inductor/exc.py).
_WRAPPERS = frozenset({"BackendCompilerFailed", "InductorError"})

_OBSERVED = "ObservedException"

# Functions that stand between any two functions of the compiler and say nothing about a failure:
# decorators' inner functions and dispatch.
_PLUMBING = frozenset(
    {"wrapped", "wrapper", "inner", "_fn", "__call__", "dispatch", "<lambda>", "<listcomp>"}
)

_COMPILE_ERROR = ("CppCompileError",)

_RECURSION = "RecursionError"
_STACK_END = re.compile(r"(?<=maximum recursion depth exceeded) (?:while|in) [\w ]+")
# A function that is so often on the stack, and half as often as the one that is there most, takes
# part in a recursion; others are there now and then.
_RECURS = 3
# More tells nothing: the innermost decides, the next two help a person.
_FRAMES = 3


@dataclass(frozen=True)
class Signature:
    """The identity of a failure. Which fields decide is said at `matches`."""

    failure_class: FailureClass
    stage: str
    partition: str = ""
    exception_types: tuple[str, ...] = ()
    """Names of the types, the outermost first, then what caused it; wrappers left out."""
    frames: tuple[str, ...] = ()
    """Innermost functions of torch, 'torch._inductor.lowering:scatter_', the innermost first."""
    message: str = ""
    """Normalised (`normalise_message`); for a wrong result, the kind of difference; for a predicate
    its text, for a script its command."""
    signal: str | None = None
    output: int | None = None
    magnitude: int | None = None
    """Decimal order of magnitude of a wrong result's largest error."""

    def matches(self, other: "Signature") -> bool:
        """Return True if both are the same bug.

        - exception: the types, the stage, the innermost frame of torch and the message; a type
          that wraps itself counts once
        - C++ compile error: it has no frames, and its message is the compiler's first error line;
          the numbers in the names of generated code do not count
        - crash: the signal and the stage
        - hang, memory: the stage
        - predicate, script: the text of it
        - wrong_result: the kind of difference; which output it is changes as outputs are removed

        The partition never decides: dropping a gradient turns 'forward' into 'inference'.
        """
        return self._key() == other._key()

    def is_as_finite_as(self, wanted: "Signature") -> bool:
        """Return False for a wrong result that shows in NaN or infinity alone, and the wanted one
        did not.

        Both are of one kind, because it depends on the inputs.  But any division by zero makes a
        NaN of a rounding error: what was finite is not reduced to that.
        """
        return self.magnitude is not None or wanted.magnitude is None

    def apart_from(self, other: "Signature") -> str:
        """Return what tells this failure from one that looks like it in a line; else nothing.

        Two may have the types, the stage and the first line of the message in common, and differ
        in a later line (Inductor names the operator there), or in the frame.
        """
        lines, known = self.message.splitlines(), other.message.splitlines()
        same = (self.failure_class, self.exception_types, lines[:1])
        if same != (other.failure_class, other.exception_types, known[:1]):
            return ""
        told = [line.strip() for line in lines if line not in known]
        frames = [f"in {name}" for name in self.frames[:1] if name not in other.frames[:1]]
        return next(iter([*told, *frames]), "")

    @property
    def is_kill(self) -> bool:
        """Return True if the process was killed from outside, as by the kernel for its memory."""
        return self.failure_class == "crash" and self.signal in (None, "SIGKILL")

    @cached_property
    def digest(self) -> str:
        """The sha256 of what decides: two signatures match exactly if their digests are equal."""
        return digest_of(canonical_json(self._key()))

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object; `from_json` undoes it."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @staticmethod
    def from_json(value: Json) -> "Signature":
        """Return the signature that `to_json` wrote; DamagedStore when `value` is none."""
        try:
            return _from_object(value)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedStore(f"A stored signature is none: {error}.") from error

    def _key(self) -> list[Json]:
        match self.failure_class:
            case "exception":
                innermost = self.frames[0] if self.frames else None
                types: list[Json] = [name for name, _ in groupby(self.exception_types)]
                message = without_homes_of_objects(self.message)
                if self.exception_types == _COMPILE_ERROR:
                    message = without_numbers_of_names(message)
                return ["exception", self.stage, types, innermost, message]
            case "crash":
                return ["crash", self.stage, self.signal]
            case "hang" | "memory":
                return [self.failure_class, self.stage]
            case "wrong_result" | "predicate" | "script":
                return [self.failure_class, self.message]


def from_exception(exc: BaseException, stage: str, partition: str = "") -> Signature:
    """Return the signature of an exception that the pipeline raised in that stage."""
    return from_chain(raised_chain(exc), stage, partition)


def from_chain(raised: Sequence[Raised], stage: str, partition: str = "") -> Signature:
    """Return the signature of an exception and what it was made from, described as data."""
    chain = [error for error in raised if error.type_name not in _WRAPPERS]
    compiler = next((error for error in chain if _is_compile_error(error)), None)
    if compiler is not None:
        message = normalise_message(compiler.text)
        return Signature("exception", stage, partition, _COMPILE_ERROR, (), message)
    chain = chain or [raised[0]]
    types = tuple(error.type_name for error in chain)
    # Dynamo says the same of whatever the program raised, and names that in the cause.
    texts = [*(error.text for error in chain[1:] if _OBSERVED in error.bases), chain[0].text]
    message = "\n".join(map(normalise_message, texts))
    if _RECURSION in chain[0].bases:
        message = _STACK_END.sub("", message)  # where it happened to end
    return Signature("exception", stage, partition, types, _frames(chain), message)


def telling_frames(frames: Sequence[str]) -> tuple[str, ...]:
    """Return those of a signature's frames that say something about a failure."""
    return tuple(name for name in frames if not _is_plumbing(name))


def crash_signature(stage: str, partition: str, signal: str | int | None) -> Signature:
    """Return the signature of a process that a signal ended, by name or number ('SIGSEGV', 11,
    -11).
    """
    return Signature("crash", stage, partition, signal=signal_name(signal))


def crash_message(signal: str | None, node: str = "") -> str:
    """Return the message of a crash: the signal, and the node that was being lowered, if any."""
    lowering = f", while it lowered the node {node}" if node else ""
    return f"The process ended here, with {signal or 'no word why'}{lowering}."


def lowered_when_it_crashed(message: str) -> str | None:
    """Return the node that `crash_message` names, or None."""
    found = _LOWERED.search(message)
    return found[1] if found else None


_LOWERED = lazy_text(r", while it lowered the node (\w+)\.$")


def hang_signature(stage: str, partition: str = "") -> Signature:
    """Return the signature of a stage that exceeded its time limit."""
    return Signature("hang", stage, partition)


def memory_signature(stage: str, partition: str = "") -> Signature:
    """Return the signature of a stage that took more memory than it may."""
    return Signature("memory", stage, partition)


def predicate_signature(text: str) -> Signature:
    """Return the signature of a case for which a predicate holds, by its canonical text."""
    return Signature("predicate", "", message=text)


def script_signature(command: str) -> Signature:
    """Return the signature of a case that a user's command finds interesting."""
    return Signature("script", "", message=command)


def wrong_result_signature(
    kind: str, output: int | None = None, magnitude: int | None = None, *, stage: str = "run"
) -> Signature:
    """Return the signature of a compiled function that returns something else than eager does.

    `kind` says how it differs: 'values', 'shape', 'dtype', 'stride', 'aliasing', ...
    """
    return Signature("wrong_result", stage, message=kind, output=output, magnitude=magnitude)


def signal_name(signal: str | int | None) -> str | None:
    """Return 'SIGSEGV' for 11, for -11 (as `Popen.returncode` has it) and for itself."""
    if signal is None or (isinstance(signal, str) and not signal.lstrip("-").isdigit()):
        return signal
    try:
        return signals.Signals(abs(int(signal))).name
    except ValueError:
        return f"signal {abs(int(signal))}"


def _is_compile_error(error: Raised) -> bool:
    """Return True if the C++ compiler refused the generated code, here or in a compile worker."""
    return "CppCompileError" in error.bases or is_compiler_output(error.text)


def _frames(chain: Sequence[Raised]) -> tuple[str, ...]:
    """Return the innermost frames of torch, from the exception nearest to the cause that has
    any.
    """
    for error in reversed(chain):
        frames = [name for place in error.frames if (name := _frame_name(*place))]
        if _RECURSION in error.bases:
            frames = _recurring(frames) or frames
        telling = [name for name in frames if not _is_plumbing(name)] or frames
        if telling:
            return tuple(telling[: -_FRAMES - 1 : -1])
    return ()


def _recurring(frames: Sequence[str]) -> list[str]:
    """Return the functions of a recursion, the one that begins it last.

    In which of them the stack ends is chance: it depends on all that called the first.
    """
    times = Counter(frames)
    least = max(_RECURS, max(times.values(), default=0) // 2)
    return [name for name in reversed(times) if times[name] >= least]


def _frame_name(module: str, function: str) -> str | None:
    """Return 'module:function' for a frame of torch; None for any other."""
    if not f"{module}.".startswith("torch."):
        return None
    # Generated code is a module named after the hash of its source; its functions come and go
    # with the graph.
    known = strip_hashes(module)
    return f"{known}:{function if known == module else '<generated>'}"


def _is_plumbing(name: str) -> bool:
    return name.rpartition(":")[2].rpartition(".")[2] in _PLUMBING


def _from_object(value: Json) -> Signature:
    if not isinstance(value, dict) or value["failure_class"] not in CLASSES:
        raise TypeError(f"{value!r:.60} is no object with a failure class")
    return Signature(
        failure_class=cast(FailureClass, value["failure_class"]),
        stage=_text(value["stage"]),
        partition=_text(value.get("partition", "")),
        exception_types=_texts(value.get("exception_types", [])),
        frames=_texts(value.get("frames", [])),
        message=_text(value.get("message", "")),
        signal=None if value.get("signal") is None else _text(value["signal"]),
        output=_number(value.get("output")),
        magnitude=_number(value.get("magnitude")),
    )


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not text")
    return value


def _texts(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.60} is not a list")
    return tuple(_text(item) for item in value)


def _number(value: Json) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{value!r:.60} is not a number")
    return value
