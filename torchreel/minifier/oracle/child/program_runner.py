"""One run of one program, from its text to what was seen. Runs in the worker's child.

Lives here: the program as the module `__main__`, once in eager mode (what that rejects is no case)
and once with `torch.compile` or `torch.export`; where something is to come out differently, both
are compared. A whole program that is not compared runs in eager mode in a fork: it may do what can
be done once in a process (choose how processes start, set the number of threads). Not here: the
comparison (`program_state`), processes and limits (`oracle.worker`), stages (`stages`). The
signature is taken where the recorder takes it, as the exception leaves Dynamo or torch.export:
above that, torch cuts tracebacks short, or adds to the message.
"""

from __future__ import annotations

import ast
import linecache
import os
import random
import signal
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from torchreel.minifier.cases.last_call import in_eager_mode, last_call
from torchreel.minifier.cases.source_case import (
    ANYTHING,
    CACHE_FOLDER,
    OBSERVES,
    RANDOM,
    SourceCase,
)
from torchreel.minifier.oracle.child import code_generation
from torchreel.minifier.oracle.child.caught import ErrorCatcher
from torchreel.minifier.oracle.child.killed_programs import killed_program
from torchreel.minifier.oracle.child.program_state import CALLED, ProgramRun, departure, unsteady
from torchreel.minifier.oracle.child.stages import (
    DYNAMO_POINTS,
    EXPORT_POINTS,
    WHOLE_POINTS,
    Announce,
    Locate,
    Position,
    Stages,
    followed,
)
from torchreel.minifier.oracle.protocol import ChildReport, Task
from torchreel.minifier.results.verdicts import Verdict
from torchreel.recorder.attach import AttachPoint
from torchreel.recorder.event_log.failures import is_control_flow, is_soft
from torchreel.recorder.probes import dynamo, export
from torchreel.replay.imposed.vector_isa import copy_probes
from torchreel.sandbox.processes import die_with_parent
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.raised import lineage
from torchreel.store.failures.signature import Signature, from_exception, signal_name
from torchreel.torch_compat import configs
from torchreel.torch_compat.dynamo.backends import forget_backends_of
from torchreel.torch_compat.operators import dispatcher
from torchreel.torch_compat.patching import patched
from torchreel.torch_compat.versions.names import TorchName, resolve

_FILE = "repro.py"
_libraries: list[Any] = []
"""Those that the program made in its latest run."""
_OTHER_NUMBERS = "the only difference is that Inductor draws other random numbers, which it may"
_SHOWN = 3
"""So many places that were not compared are named."""


def run(task: Task, announce: Announce) -> ChildReport:
    """Run a program and say what came of it; never raises an exception of that program."""
    case = task.case
    assert isinstance(case, SourceCase), "`run_case` chose this runner"
    announce(Position("decode"))
    with ErrorCatcher() as outcome:
        codes = [_code(case, compiled=compiled) for compiled in (False, True)]
    if outcome.error is not None:
        return ChildReport("invalid", None, _message(outcome.error), "decode")
    runs = [ProgramRun(), ProgramRun(), ProgramRun()]
    if case.eager or case.observes:
        announce(Position("eager"))
        if case.whole and not case.observes:
            rejected = _rejected_in_fork(case, codes[0])
        else:
            rejected = _rejected(case, codes[0], runs[: 2 if case.observes else 1])
        if rejected is not None:
            return rejected
    announce(Position("joint" if case.exports else "dynamo"))
    stages = Stages(announce)
    points, watched = _points_of(case)
    seen: list[tuple[Exception, Signature]] = []
    with (
        ErrorCatcher() as outcome,
        followed(stages, lambda partition: "full", points),
        _all_watched(watched, stages, seen),
        _caches_of(case),
    ):
        execute(codes[1], case.text, runs[2])
    if outcome.error is not None:
        return _finding(outcome.error, seen, stages, task.signature)
    if not case.observes:
        return ChildReport("none", None, "", "", stages.reached)
    with ErrorCatcher() as outcome:
        report = _compared(case, runs, task.signature, stages)
        if report.verdict not in ("same", "other") or not RANDOM.search(case.text.lower()):
            return report
        return _with_eager_numbers(case, codes[1], runs, task.signature, stages) or report
    return ChildReport(
        "invalid", None, _message(outcome.error or ValueError()), "run", stages.reached
    )


def _rejected(case: SourceCase, code: CodeType, runs: Sequence[ProgramRun]) -> ChildReport | None:
    """Run a program in eager mode, once for each of `runs`; return the report if that raises."""
    with ErrorCatcher() as outcome, _eager_mode(case):
        for each in runs:
            execute(code, case.text, each)
    if outcome.error is None:
        return None
    return ChildReport("invalid", None, _message(outcome.error), "eager")


def _rejected_in_fork(case: SourceCase, code: CodeType) -> ChildReport | None:
    """Run a program once in eager mode, in a process of its own, as `_rejected` does."""
    me = os.getpid()
    with tempfile.TemporaryFile() as answer:  # a pipe could be held open by the program's processes
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent(me)
                report = _rejected(case, code, [ProgramRun()])
                if report is not None:
                    answer.write(report.detail.encode("utf-8", "backslashreplace"))
                    answer.flush()
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        answer.seek(0)
        detail = answer.read().decode()
    if detail:
        return ChildReport("invalid", None, detail, "eager")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        why = f"eager mode died of {signal_name(number)}"
        if number == signal.SIGKILL:
            return ChildReport("unjudged", None, why, "eager", killed=True)
        return ChildReport("invalid", None, why, "eager")
    if os.WEXITSTATUS(status):
        why = f"eager mode exited {os.WEXITSTATUS(status)}"
        return ChildReport("unjudged", None, why, "eager")
    return None


def _with_eager_numbers(
    case: SourceCase,
    code: CodeType,
    runs: Sequence[ProgramRun],
    wanted: Signature,
    stages: Stages,
) -> ChildReport | None:
    """Report how a program differs where compiled code draws numbers as eager mode does.

    Inductor draws others by design: that is no wrong result.  None if it fails when it runs again.
    """
    torch._dynamo.reset()
    again = ProgramRun()
    with ErrorCatcher() as outcome, code_generation.eager_random_numbers(), _caches_of(case):
        execute(code, case.text, again)
    if outcome.error is not None:
        return None
    report = _compared(case, [*runs[:2], again], wanted, stages)
    if report.verdict != "none":
        return report
    return replace(report, detail=_OTHER_NUMBERS)


def _compared(
    case: SourceCase, runs: Sequence[ProgramRun], wanted: Signature, stages: Stages
) -> ChildReport:
    """Report what a program computed or left differently, if eager mode always does the same."""
    eager, again, compiled = runs
    left_out: set[str] = set()
    if case.observes == ANYTHING:
        left_out = unsteady(eager, again)
        parted = departure(eager, compiled, but=left_out)
    else:
        noise = departure(eager, again, case.observes)
        if noise is not None:
            return ChildReport("invalid", None, f"eager mode twice: {noise}", "eager")
        parted = departure(eager, compiled, case.observes)
    if parted is None:
        return ChildReport("none", None, _left_out_text(left_out), "", stages.reached)
    eager.at(parted.place)  # which raises what keeps it from being asked again
    found = parted.signature()
    verdict: Verdict = "same" if found.matches(wanted) else "other"
    values: dict[str, Json] = {OBSERVES: parted.place}
    return ChildReport(verdict, found.to_json(), str(parted), "dynamo", stages.reached, values)


def _left_out_text(places: Collection[str]) -> str:
    if not places:
        return ""
    shown = ", ".join(sorted(places)[:_SHOWN]) + (", ..." if len(places) > _SHOWN else "")
    return f"values not compared, because eager mode itself varies: {shown}"


def execute(code: CodeType, text: str, run: ProgramRun) -> None:
    """Run a program as the module `__main__`, whose source can be quoted."""
    module = ModuleType("__main__")
    module.__file__ = _FILE
    run.names = vars(module)
    if CALLED in code.co_names:
        vars(module)[CALLED] = run.called
    sys.modules["__main__"] = module
    linecache.cache[_FILE] = (len(text), None, text.splitlines(keepends=True), _FILE)
    torch.manual_seed(0)
    random.seed(0)
    forget_backends_of(module.__name__)  # of the run before, as the libraries are
    dispatcher.forget(_libraries)
    # Its command line is empty, as a script's is: the one of this process is not for it.
    with ExitStack() as stack:
        stack.enter_context(patched(sys, "argv", [_FILE]))
        stack.enter_context(dispatcher.libraries_noted(_FILE, _libraries))
        stack.enter_context(suppress(SystemExit))  # a whole program may end itself
        exec(code, vars(module))


@contextmanager
def _caches_of(case: SourceCase) -> Iterator[None]:
    """Give a program that needs the caches of compiled code empty ones, for the length of a `with`.

    What another run left there would decide this one.
    """
    if not case.caches:
        yield
        return
    before = os.environ[CACHE_FOLDER]
    os.makedirs(before, exist_ok=True)  # it ends with the worker, and what a killed run left there
    with tempfile.TemporaryDirectory(dir=before, ignore_cleanup_errors=True) as folder:
        copy_probes(Path(folder), make=False)
        os.environ[CACHE_FOLDER] = folder
        try:
            with configs.local_caches_on():
                yield
        finally:
            os.environ[CACHE_FOLDER] = before


def _eager_mode(case: SourceCase) -> AbstractContextManager[object]:
    """Return a context in which a whole program compiles nothing; the code of others doesn't."""
    return torch.compiler.set_stance("force_eager") if case.whole else nullcontext()


def _code(case: SourceCase, *, compiled: bool) -> CodeType:
    tree = ast.parse(case.text)
    if case.whole:
        return compile(tree, _FILE, "exec")
    call = last_call(tree)
    if not compiled:
        eager = in_eager_mode(call)
        call.func, call.args, call.keywords = eager.func, eager.args, eager.keywords
        ast.fix_missing_locations(tree)
    if case.observes:
        watch = ast.Call(ast.Name(CALLED, ast.Load()), [call.func], [])
        call.func = ast.copy_location(watch, call.func)
        ast.fix_missing_locations(tree)
    return compile(tree, _FILE, "exec")


def _points_of(
    case: SourceCase,
) -> tuple[Sequence[tuple[AttachPoint, Locate]], Sequence[AttachPoint]]:
    """Return where the stages of a program are followed, and whose errors are its failures."""
    if case.whole:
        return WHOLE_POINTS, (dynamo.COMPILE, export.EXPORT, export.PROGRAM)
    if case.exports:
        return EXPORT_POINTS, (export.EXPORT,)
    return DYNAMO_POINTS, (dynamo.COMPILE,)


@contextmanager
def _all_watched(
    points: Sequence[AttachPoint], stages: Stages, seen: list[tuple[Exception, Signature]]
) -> Iterator[None]:
    with ExitStack() as stack:
        for point in points:
            stack.enter_context(_watched(point, stages, seen))
        yield


@contextmanager
def _watched(
    point: TorchName, stages: Stages, seen: list[tuple[Exception, Signature]]
) -> Iterator[None]:
    """Take the signature of what leaves Dynamo or torch.export, for the length of a `with`."""
    owner, name = resolve(point)
    original = vars(owner)[name]

    def watched(*args: Any, **kwargs: Any) -> Any:
        outcome = ErrorCatcher()
        with outcome:
            return original(*args, **kwargs)
        assert outcome.error is not None, "anything else was returned or goes on"
        if not is_control_flow(outcome.error):
            at = stages.failed_at(outcome.error)
            if point is export.EXPORT and at.stage == "dynamo" and is_soft(outcome.error):
                at = Position("joint")  # Dynamo may leave it to eager mode: export may not
            found = from_exception(outcome.error, at.stage, at.partition)
            seen.append((outcome.error, found))
        raise outcome.error

    with patched(owner, name, watched):
        yield


def _finding(
    error: Exception,
    seen: list[tuple[Exception, Signature]],
    stages: Stages,
    wanted: Signature,
) -> ChildReport:
    known = list(lineage(error))
    at = stages.failed_at(error)
    if why := killed_program(error):
        return ChildReport("unjudged", None, why, at.stage, killed=True)
    found = next(
        (signature for raised, signature in reversed(seen) if any(e is raised for e in known)),
        from_exception(error, at.stage, at.partition),
    )
    verdict = "same" if found.matches(wanted) else "other"
    return ChildReport(verdict, found.to_json(), _message(error), found.stage, stages.reached)  # type: ignore[arg-type]


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:2000]}"
