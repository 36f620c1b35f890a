"""Does a repro show the error that it was made for? Asked in a fresh process, without torchreel.

Lives here: the process, what it may import and do, and the comparison of what it showed with the
signature. Not here: what happens in that process (`runner`), which packages it may import
(`releases.packages`), and what follows from the answer (`repro`, `releases`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import msgspec

from torchreel import sandbox
from torchreel.errors import MinifyError
from torchreel.minifier.oracle.command import INTERESTING, run_command
from torchreel.minifier.oracle.worker_oracle import NEEDS_KERNELS
from torchreel.minifier.repro import runner
from torchreel.minifier.scripts import sharing
from torchreel.minifier.scripts.measuring import HOLDS
from torchreel.minifier.search.similar import as_earlier
from torchreel.releases.packages import foreign_packages, needed_packages
from torchreel.replay.imposed.device import libraries
from torchreel.replay.imposed.vector_isa import copy_probes
from torchreel.sandbox import processes
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures import raised
from torchreel.store.failures.raised import Denial, Raised, in_one_line
from torchreel.store.failures.signature import (
    Signature,
    crash_signature,
    from_chain,
    hang_signature,
    memory_signature,
    wrong_result_signature,
)

_SECONDS = 900.0  # importing torch, compiling and running, on a loaded machine
_TAIL = 20_000  # characters of its output that are kept
# A script has to fail without what changes the compile here.
_REMOVED = re.compile(
    r"TORCHREEL|TORCH_(LOGS|TRACE|COMPILE)|TORCHINDUCTOR_|TORCHDYNAMO_|ATEN_CPU_|PYTHON"
)
# `faulthandler` has ended the script while torch was at work.
_HUNG = re.compile(r"Timeout \(.*[/\\]torch[/\\]_", re.DOTALL)
# What Python, C++ and torch's allocator say when there is no more.
_NO_MEMORY = re.compile(r"MemoryError|bad_alloc|[Cc]an't allocate memory|[Cc]annot allocate memory")
_SETTINGS = {
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}
# NumPy's threads could not be confined; precompiled headers are kept for all processes of a user.
_SETTINGS_CONFINED = {
    "OPENBLAS_NUM_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
}


@dataclass(frozen=True)
class Interpreter:
    """The Python that a repro is run with: of this environment, or of one with another torch."""

    path: str = ""
    """The Python of another environment; '' for this one."""
    torch: str = ""
    """The version of the other environment's torch."""
    foreign: frozenset[str] = frozenset()
    """The top-level packages in the other environment that its torch does not need."""


_NO_DEVICE = (
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
)
HERE = Interpreter()
"""This environment."""


@dataclass(frozen=True)
class CheckResult:
    """The result of a repro that ran by itself."""

    holds: bool
    """True if it showed the error of the signature."""
    exact: bool
    """True if also the innermost frame of torch was the same, where there is one to compare."""
    observed: Signature | None
    exit_status: int
    output: str
    """The end of what it wrote to stderr."""
    detail: str
    """In a few words, what happened."""
    message: str = ""
    """The first line of the exception, as it was raised."""
    chain: tuple[Raised, ...] = ()
    """The exception that ended it, as data."""
    timed_out: bool = False
    """True if it was ended for the time that it took."""
    stands_in: bool = False
    """True if a device stood in for the recorded GPU."""
    denied: bool = False
    """True if the sandbox kept it from something that it tried."""


def check(
    script: str,
    signature: Signature,
    imports: Sequence[str] = (),
    command: Sequence[str] = (),
    *,
    as_test: bool = False,
    trust: bool = False,
    interpreter: Interpreter = HERE,
    eager: bool = False,
    accelerator: Mapping[str, Json] | None = None,
) -> CheckResult:
    """Run a script in an empty directory and compare the error it shows with a signature.

    Without `trust` its process is confined: what the script does came from a store.

    `imports` are modules of the user's that the script needs besides torch. Where a command of the
    user's is the judge, that is asked; it is never taken from the signature, which a store holds.
    `as_test`: the functions named `test_...` of the script are called, as pytest would.
    `eager`: `torch.compile` does nothing. `accelerator`: facts of the recorded GPU, for a script
    that finds none here: it is run once more with a device that stands in.
    """
    if signature.failure_class == "script":
        return _judged_by_command(script, signature, command)
    request: dict[str, object] = {"as_test": as_test, "eager": eager}
    found = _judged_in_a_process(script, signature, imports, request, trust, interpreter)
    if found.holds or not any(text in found.message for text in _NO_DEVICE):
        return found
    if accelerator is not None and not interpreter.path:
        request["accelerator"] = accelerator
        again = _judged_in_a_process(script, signature, imports, request, trust, interpreter)
        return replace(again, stands_in=True)
    return replace(found, detail="it computes on a GPU, and this machine has none")


def _judged_in_a_process(
    script: str,
    signature: Signature,
    imports: Sequence[str],
    more: Mapping[str, object],
    trust: bool,
    interpreter: Interpreter,
) -> CheckResult:
    with tempfile.TemporaryDirectory(prefix="torchreel-check-") as folder:
        place = Path(folder)
        path = place / "empty" / ("test_repro.py" if more["as_test"] else "repro.py")
        path.parent.mkdir()
        path.write_text(script, encoding="utf-8")
        report = place / "report.json"
        request = _request(path, report, signature, imports, interpreter) | dict(more)
        if not trust:
            request |= _confinement(place, interpreter)
        if "accelerator" in request:
            _prepare_stand_in(place, request)
        status, output, timed_out = _run(place, request, interpreter)
        shown = _reported(report)
    denied = (
        "" if trust else next(filter(None, (sandbox.denial(*one) for one in shown.denials)), "")
    )
    if denied:
        return CheckResult(False, False, None, status, output, denied, denied=True)
    seen = from_chain(shown.chain, signature.stage, signature.partition) if shown.chain else None
    if timed_out:
        why = f"it had not ended after {_SECONDS:.0f} s"
        return CheckResult(False, False, None, status, output, why, timed_out=True)
    found = _judged(signature, _observed(signature, seen, status, output), status, output)
    message = in_one_line(shown.chain) if shown.chain else ""
    return replace(found, message=message, chain=shown.chain)


def _prepare_stand_in(place: Path, request: dict[str, object]) -> None:
    """Let the process have the library of a device that stands in, and Triton's assembler."""
    libraries.prepare(place)
    request["root"] = str(Path(sandbox.__file__).parents[2])
    if isinstance(programs := request.get("programs"), list):
        programs += map(str, sandbox.gpu_compilers())


def _judged_by_command(script: str, signature: Signature, command: Sequence[str]) -> CheckResult:
    """Return the verdict of the user's command on a script."""
    if not command:
        why = "nobody named the command that judges it"
        return CheckResult(False, False, None, 0, "", why)
    with tempfile.TemporaryDirectory(prefix="torchreel-check-") as folder:
        path = Path(folder) / "repro.py"
        path.write_text(script, encoding="utf-8")
        ended = run_command(command, path, _SECONDS)
    holds = ended.status == INTERESTING
    shown = _message(signature, 0) if holds else f"the command exited with status {ended.status}"
    seen = signature if holds else None
    return CheckResult(holds, holds, seen, ended.status or 0, ended.said, shown)


def _request(
    script: Path,
    report: Path,
    signature: Signature,
    imports: Sequence[str],
    interpreter: Interpreter,
) -> dict[str, object]:
    allowed = needed_packages({name.partition(".")[0] for name in imports})
    hidden = interpreter.foreign if interpreter.path else foreign_packages()
    return {
        "script": str(script),
        "report": str(report),
        "raised": raised.__file__,
        "processes": processes.__file__,
        "hidden": sorted(hidden - allowed),
        "imports": [*imports],
        "path": _paths(imports),
        "stage": signature.stage,
        "partition": signature.partition,
    }


def _paths(imports: object) -> list[str]:
    """Return where the user's modules are found; nowhere if none is needed."""
    places = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return list(filter(None, places)) if imports else []


def _confinement(place: Path, interpreter: Interpreter) -> dict[str, object]:
    """Return the permissions of the process besides reading: folder, programs, root of imports.

    It may start its very Python too: Inductor tries out a probe in one, and the test of a repro
    that dies runs it in one. That process is confined like its parent.
    """
    sandbox.warn_once()
    programs = (*sandbox.cpp_compiler(), *sandbox.python(interpreter.path))
    package = Path(sandbox.__file__).parents[1]
    return {
        "folder": str(place),
        "programs": [*map(str, programs)],
        "root": str(_root(place, package) if interpreter.path else package.parent),
    }


def _root(place: Path, package: Path) -> Path:
    """Return a folder from which another Python can import the sandbox and nothing else of ours."""
    root = place / "root"
    root.mkdir()
    (root / package.name).symlink_to(package)
    library = find_spec("landlockpy")
    if library is not None and library.origin is not None:
        folder = Path(library.origin).parent
        (root / folder.name).symlink_to(folder)
    return root


def _run(
    place: Path, request: dict[str, object], interpreter: Interpreter
) -> tuple[int, str, bool]:
    """Return the exit status, the end of the output, and whether the time was up."""
    (place / "request.json").write_text(json.dumps(request), encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not _REMOVED.match(k)}
    if request.get("as_test"):  # which starts a process of its own
        environment["PYTHONPATH"] = os.pathsep.join(_paths(request["imports"]))
    if "folder" in request:
        environment |= _SETTINGS_CONFINED
    if "accelerator" in request:
        # A worker of Inductor's would have no device; the library is looked for in that folder.
        environment |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TMPDIR": str(place)}
    environment |= {**_SETTINGS, "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor")}
    make = request["stage"] in NEEDS_KERNELS
    copy_probes(place / "inductor", make=make, python=interpreter.path, torch=interpreter.torch)
    # -X faulthandler is left out: a crash has to end the process as it would end the user's.
    python = interpreter.path or sys.executable
    command = [python, "-I", str(Path(runner.__file__)), str(place / "request.json")]
    timed_out = False
    with (place / "output").open("w+b") as output:
        child = subprocess.Popen(
            command,
            cwd=place / "empty",
            env=processes.named_parent(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = child.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            status, timed_out = -signal.SIGKILL, True
        finally:
            _end(child)
        output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL))
        return status, output.read().decode("utf-8", "replace"), timed_out


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process with everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


class _Report(msgspec.Struct, frozen=True):
    """The exception as the runner wrote it; empty where there was none."""

    chain: tuple[Raised, ...] = ()
    denials: tuple[Denial, ...] = ()


def _reported(report: Path) -> _Report:
    """Read the runner's report; an empty one if there is none.

    Raises MinifyError for a malformed one: the script may have written it.
    """
    data = sandbox.read_file(report)
    if data is None:
        return _Report()
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        shown = msgspec.json.decode(data, type=_Report)
        if shown.chain:
            return shown
    raise MinifyError("The process that ran the repro left a report that can't be read.")


def _observed(
    wanted: Signature, seen: Signature | None, status: int, output: str
) -> Signature | None:
    """Return the signature of the script's failure; None when it ended without an error."""
    if wanted.failure_class == "memory" and status and _NO_MEMORY.search(output):
        return memory_signature(wanted.stage, wanted.partition)
    if wanted.failure_class == "predicate" and f"{HOLDS}{wanted.message}\n" in f"{output}\n":
        return wanted
    if seen is not None and wanted.failure_class == "wrong_result":
        return _wrong_result(seen, wanted) or seen
    if seen is not None or status == 0:
        return seen
    if wanted.failure_class == "hang" and _HUNG.search(output):
        return hang_signature(wanted.stage, wanted.partition)
    return crash_signature(wanted.stage, wanted.partition, status) if status < 0 else None


def _wrong_result(seen: Signature, wanted: Signature) -> Signature | None:
    """Return the signature of a failed comparison; its message is a kind of `comparison`.

    None for any other error. For a wrong result of Dynamo a script compares one object alone, by
    `torch.testing` or by a bare `assert`.
    """
    if seen.exception_types != ("AssertionError",):
        return None
    by_torch = "torch.testing" in "".join(seen.frames)
    if wanted.stage == "dynamo":
        return wanted if by_torch or not seen.frames else None
    if not by_torch:
        return None
    if wanted.message == sharing.KIND:  # such a script compares nothing else
        return wrong_result_signature(sharing.KIND, stage=seen.stage)
    attribute = re.search(r"values for attribute '(\w+)", seen.message)
    return wrong_result_signature(attribute[1] if attribute else "values", stage=seen.stage)


def _judged(wanted: Signature, seen: Signature | None, status: int, output: str) -> CheckResult:
    exact = seen is not None and seen.matches(wanted)
    holds = exact or (seen is not None and _is_same_error(seen, wanted))
    return CheckResult(holds, exact, seen, status, output, _message(seen, status))


def _is_same_error(seen: Signature, wanted: Signature) -> bool:
    """Return True if the types and the message are the same, whatever the innermost frame is.

    Dynamo may raise the same error in another frame. `torch.testing` reports NaN and other wrong
    values as one kind.
    """
    if {seen.failure_class, wanted.failure_class} == {"wrong_result"}:
        return {seen.message, wanted.message} <= {"values", "nan"}
    if wanted.failure_class == "crash" and wanted.signal is None:
        return seen.failure_class == "crash"
    if wanted.frames and not (wanted.message or seen.frames):
        return False  # an `assert` without a text, which is nowhere in torch
    return replace(as_earlier(seen, wanted), frames=wanted.frames).matches(wanted)


def _message(seen: Signature | None, status: int) -> str:
    if seen is None:
        return "it ended without an error" if status == 0 else f"it exited with status {status}"
    if seen.failure_class == "crash":
        return f"it died by {seen.signal}"
    if seen.failure_class == "hang":
        return "it had not ended when its time was over"
    if seen.failure_class == "predicate":
        return f"it holds that {seen.message}"
    if seen.failure_class == "script":
        return f"{seen.message} finds it interesting"
    if seen.failure_class == "memory":
        return "it ran out of memory"
    if seen.failure_class == "wrong_result":
        return f"eager and compiled differ: {seen.message}"
    message = seen.message.partition("\n")[0]
    return f"{'/'.join(seen.exception_types)}: {message}".rstrip(": ")
