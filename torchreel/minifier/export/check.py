"""Does a repro show the error that it was made for? Asked in a fresh process, without torchreel.

Lives here: the process, what it may import and do, and the comparison of what it showed with the
signature. Not here: what happens in that process (`runner`), and what follows from the answer
(`export`).
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
from functools import cache
from importlib import metadata
from pathlib import Path

import torchreel
from torchreel import sandbox
from torchreel.errors import MinifyError
from torchreel.minifier.export import runner
from torchreel.minifier.export.measuring import HOLDS
from torchreel.minifier.export.script import HANG_SECONDS
from torchreel.minifier.oracle import NEEDS_KERNELS
from torchreel.minifier.user_command import INTERESTING, run_command
from torchreel.replay.vector_isa import copy_probes
from torchreel.store.jsontypes import Json, parse_json
from torchreel.store.signature import (
    Signature,
    crash_signature,
    hang_signature,
    memory_signature,
    wrong_result_signature,
)

_SECONDS = 900.0  # importing torch, compiling and running, on a loaded machine
_TAIL = 20_000  # characters of its output that are kept
# What torch imports where it finds it, without declaring it.
_OPTIONAL = ("numpy", "packaging", "psutil", "triton")
_REMOVED = re.compile(r"TORCHREEL|TORCH_(LOGS|TRACE|COMPILE_DEBUG)|TORCHDYNAMO_|PYTHON")
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
class CheckResult:
    """What a repro did when it ran by itself."""

    holds: bool
    """Whether it showed the error of the signature."""
    exact: bool
    """Whether also the innermost frame of torch was the same, where there is one to compare."""
    observed: Signature | None
    exit_status: int
    output: str
    """The end of what it wrote to stderr."""
    detail: str
    """In a few words, what happened."""
    message: str = ""
    """The first line of the exception, as it was raised."""


def check(
    script: str,
    signature: Signature,
    imports: Sequence[str] = (),
    command: Sequence[str] = (),
    *,
    as_test: bool = False,
    trust: bool = False,
) -> CheckResult:
    """Run a script in an empty directory and compare the error it shows with a signature.

    Without `trust` its process is confined: what the script does came from a store.

    `imports` are modules of the user's that the script needs besides torch. Where a command of the
    user's is the judge, that is asked; it is never taken from the signature, which a store holds.
    `as_test`: the functions named `test_...` of the script are called, as pytest would.
    """
    if signature.failure_class == "script":
        return _asked(script, signature, command)
    with tempfile.TemporaryDirectory(prefix="torchreel-check-") as folder:
        place = Path(folder)
        path = place / "empty" / ("test_repro.py" if as_test else "repro.py")
        path.parent.mkdir()
        path.write_text(script, encoding="utf-8")
        report = place / "report.json"
        request = {**_request(path, report, signature, imports), "as_test": as_test}
        if not trust:
            request |= _confinement(place)
        status, output = _run(place, request)
        told = _reported(report)
    if "denied" in told:
        return CheckResult(False, False, None, status, output, str(told["denied"]))
    seen = Signature.from_json(told["signature"]) if told else None
    message = str(told.get("message", ""))
    found = _judged(signature, _observed(signature, seen, status, output), status, output)
    return replace(found, message=message)


def _asked(script: str, signature: Signature, command: Sequence[str]) -> CheckResult:
    """What the user's command says of a script."""
    if not command:
        why = "nobody named the command that judges it"
        return CheckResult(False, False, None, 0, "", why)
    with tempfile.TemporaryDirectory(prefix="torchreel-check-") as folder:
        path = Path(folder) / "repro.py"
        path.write_text(script, encoding="utf-8")
        ended = run_command(command, path, _SECONDS)
    holds = ended.status == INTERESTING
    told = _told(signature, 0) if holds else f"the command exited with status {ended.status}"
    seen = signature if holds else None
    return CheckResult(holds, holds, seen, ended.status or 0, ended.said, told)


def _request(
    script: Path, report: Path, signature: Signature, imports: Sequence[str]
) -> dict[str, object]:
    allowed = _needed({name.partition(".")[0] for name in imports})
    return {
        "script": str(script),
        "report": str(report),
        "root": str(Path(torchreel.__file__).parent.parent),
        "hidden": sorted(_foreign() - allowed),
        "imports": [*imports],
        "path": [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        if imports
        else [],
        "stage": signature.stage,
        "partition": signature.partition,
    }


def _confinement(place: Path) -> dict[str, object]:
    """What the process may do besides reading.

    It may start this very Python too: Inductor tries out a probe in one, and the test of a repro
    that dies runs it in one. That process is confined like its parent.
    """
    sandbox.warn_once()
    programs = (*sandbox.cpp_compiler(), *sandbox.python())
    return {"folder": str(place), "programs": [*map(str, programs)]}


def _run(place: Path, request: dict[str, object]) -> tuple[int, str]:
    (place / "request.json").write_text(json.dumps(request), encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not _REMOVED.match(k)}
    if "folder" in request:
        environment |= _SETTINGS_CONFINED
    environment |= {**_SETTINGS, "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor")}
    copy_probes(place / "inductor", make=request["stage"] in NEEDS_KERNELS)
    # -X faulthandler is left out: a crash has to end the process as it would end the user's.
    command = [sys.executable, "-I", str(Path(runner.__file__)), str(place / "request.json")]
    with (place / "output").open("w+b") as output:
        child = subprocess.Popen(
            command,
            cwd=place / "empty",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = child.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        finally:
            _end(child)
        output.seek(0)
        return status, output.read().decode("utf-8", "replace")[-_TAIL:]


def _end(child: subprocess.Popen[bytes]) -> None:
    """Nothing that it started may outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _reported(report: Path) -> Mapping[str, Json]:
    """What the runner wrote of an exception; nothing where there was none.

    Raises MinifyError for what it would not write: the script may have.
    """
    data = sandbox.read_file(report)
    if data is None:
        return {}
    with contextlib.suppress(ValueError):
        told = parse_json(data)
        if isinstance(told, dict) and {"denied", "signature"} & told.keys():
            return told
    raise MinifyError("The process that ran the repro left a report that can't be read.")


def _observed(
    wanted: Signature, seen: Signature | None, status: int, output: str
) -> Signature | None:
    """The signature of what a script did; None when it ended without an error."""
    if wanted.failure_class == "memory" and _NO_MEMORY.search(output):
        return memory_signature(wanted.stage, wanted.partition)
    if wanted.failure_class == "predicate" and f"{HOLDS}{wanted.message}\n" in f"{output}\n":
        return wanted
    if seen is not None and wanted.failure_class == "wrong_result":
        return _wrong_result(seen, wanted) or seen
    if seen is not None or status == 0:
        return seen
    if wanted.failure_class == "hang" and "Timeout (" in output:
        return hang_signature(wanted.stage, wanted.partition)
    return crash_signature(wanted.stage, wanted.partition, status) if status < 0 else None


def _wrong_result(seen: Signature, wanted: Signature) -> Signature | None:
    """What `torch.testing.assert_close` complained of, in the words of `comparison`.

    Of what Dynamo left behind a script compares one thing alone, if need be by itself.
    """
    if seen.exception_types != ("AssertionError",):
        return None
    by_torch = "torch.testing" in "".join(seen.frames)
    if wanted.stage == "dynamo":
        return wanted if by_torch or not seen.frames else None
    if not by_torch:
        return None
    attribute = re.search(r"values for attribute '(\w+)", seen.message)
    return wrong_result_signature(attribute[1] if attribute else "values", stage=seen.stage)


def _judged(wanted: Signature, seen: Signature | None, status: int, output: str) -> CheckResult:
    exact = seen is not None and seen.matches(wanted)
    holds = exact or (seen is not None and _is_same_error(seen, wanted))
    return CheckResult(holds, exact, seen, status, output, _told(seen, status))


def _is_same_error(seen: Signature, wanted: Signature) -> bool:
    """Whether the types and the message are the same, whatever the innermost frame is.

    Through Dynamo the same error may come up in another frame. That a result is wrong in NaN or in
    other values is one kind to `torch.testing`.
    """
    if {seen.failure_class, wanted.failure_class} == {"wrong_result"}:
        return {seen.message, wanted.message} <= {"values", "nan"}
    if wanted.failure_class == "crash" and wanted.signal is None:
        return seen.failure_class == "crash"
    return replace(seen, frames=wanted.frames).matches(wanted)


def _told(seen: Signature | None, status: int) -> str:
    if seen is None:
        return "it ended without an error" if status == 0 else f"it exited with status {status}"
    if seen.failure_class == "crash":
        return f"it died by {seen.signal}"
    if seen.failure_class == "hang":
        return f"it had not ended after {HANG_SECONDS} s"
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


@cache
def _foreign() -> frozenset[str]:
    """The top-level packages of this environment that torch does not need."""
    needed = _closure("torch")
    # torchreel is named, because the metadata of an editable installation does not say it.
    return frozenset({"torchreel"}) | frozenset(
        package
        for package, distributions in _packages().items()
        if package not in _OPTIONAL and not needed & {_normalised(name) for name in distributions}
    )


def _needed(packages: set[str]) -> set[str]:
    """Top-level packages, with those of the distributions that theirs require."""
    known = _packages()
    distributions = {name for package in packages for name in known.get(package, ())}
    required = {name for found in distributions for name in _closure(found)}
    return packages | {
        package
        for package, names in known.items()
        if required & {_normalised(name) for name in names}
    }


def _packages() -> Mapping[str, list[str]]:
    """The top-level packages of this environment, with the distributions that have them.

    Without those that setuptools, once it is imported, adds to `sys.path` for itself: the repro's
    process needs them as soon as Inductor imports setuptools.
    """
    path = sys.path
    sys.path = [entry for entry in path if not entry.endswith("_vendor")]
    try:
        return metadata.packages_distributions()
    finally:
        sys.path = path


def _closure(root: str) -> set[str]:
    """A distribution and all that it requires, by normalised name."""
    found: set[str] = set()
    waiting = [root]
    while waiting:
        name = _normalised(waiting.pop())
        if name in found:
            continue
        found.add(name)
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        names = (re.match(r"[\w.-]+", line) for line in required if "extra ==" not in line)
        waiting += [match[0] for match in names if match]
    return found


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
