"""A case under several releases of torch: which one broke it, and which one fixed it.

Lives here: the choice of the script, its runs under each release, and what each run says. Not here:
the environments and the conclusions (`torchreel.releases`), one run (`check`). Called by
`torchreel releases` and `torchreel recheck`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchreel.errors import EnvironmentFailed, UnsupportedError
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro.check import HERE, CheckResult, Interpreter, check
from torchreel.minifier.repro.export import ExportOptions, best_form
from torchreel.minifier.repro.failure_summary import FailureSummary, best_known
from torchreel.minifier.scripts.script import Script
from torchreel.minifier.storage.findings import keep_finding
from torchreel.releases import environments
from torchreel.releases.environments import Environment
from torchreel.releases.results import (
    NO_ENVIRONMENT,
    Rechecked,
    Run,
    Survey,
    Tried,
    in_order,
    order_of,
)
from torchreel.store import Store
from torchreel.store.records import Compile
from torchreel.torch_compat.versions import releases

# Modules of torch that run when something is compiled, and when results are compared after it.
_COMPILER = (
    "torch._dynamo.", "torch._inductor.", "torch._functorch.", "torch._higher_order_ops.",
    "torch._subclasses.", "torch._export.", "torch.export.", "torch.fx.", "torch.testing.",
)  # fmt: skip

Say = Callable[[str], None]


@dataclass(frozen=True)
class ReleaseToTry:
    """A release to try: in this environment, in another one, or in none."""

    torch: str
    """The version."""
    interpreter: Interpreter | None
    reason: str = ""
    """The reason why there is no interpreter."""


@dataclass(frozen=True)
class SurveyOptions:
    """The options for running a case under each release."""

    runs: int = 3
    imports: tuple[str, ...] = ()
    trust: bool = False
    say: Say = field(default=lambda text: None)


def releases_to_try(
    wanted: Sequence[str], pythons: Sequence[str], make: Callable[[Sequence[str]], bool], say: Say
) -> tuple[ReleaseToTry, ...]:
    """Find an interpreter for each wanted version, for this environment and for `pythons`.

    `make` is given the versions without an environment, and says whether they may be made.
    """
    given = [_of_environment(environments.look_into(python)) for python in pythons]
    here = releases.installed().version
    covered = {_public(one.torch) for one in given} | {_public(here)}
    missing = [v for v in wanted if v not in covered and environments.found(v) is None]
    may_make = bool(missing) and make(missing)
    others = [_in_cache(v, say, may_make) for v in wanted if v not in covered]
    # An environment that was named stands for its version before this one does.
    own = (
        [] if _public(here) in {_public(one.torch) for one in given} else [ReleaseToTry(here, HERE)]
    )
    return tuple(sorted([*own, *given, *others], key=lambda one: order_of(one.torch)))


def _of_environment(found: Environment) -> ReleaseToTry:
    return ReleaseToTry(found.torch, Interpreter(str(found.python), found.torch, found.foreign))


def _in_cache(version: str, say: Say, may_make: bool) -> ReleaseToTry:
    try:
        python = environments.found(version)
        if python is None and not may_make:
            return ReleaseToTry(version, None, NO_ENVIRONMENT)
        return _of_environment(environments.look_into(python or environments.make(version, say)))
    except EnvironmentFailed as error:
        return ReleaseToTry(version, None, str(error))


def _public(version: str) -> str:
    """Return a version without the part that names a build."""
    return version.partition("+")[0]


# -- the runs -------------------------------------------------------------------------------------


def survey(
    store: Store, compile: Compile, tried: Sequence[ReleaseToTry], options: SurveyOptions
) -> Survey:
    """Run the smallest case known of a compile's failure under each release; all are tried.

    The result is kept in a store that can be written to.  Raises what `export` does for a compile
    that did not fail, for code without trust and for a case that can't be a script, and
    UnsupportedError for one that a command of the user's judges.
    """
    judge, recorded = _judge(store, compile, tried, options)
    found = in_order([judge.release(release) for release in tried])
    result = Survey(_public(recorded), found, judge.script.form)
    if store.writable:
        keep_finding(store, "releases", judge.case, judge.story.signature, "", result.to_json())
    return result


def recheck(
    store: Store, compile: Compile, release: ReleaseToTry, options: SurveyOptions
) -> Rechecked:
    """Run the smallest case known of a compile's failure under another torch.

    It is fixed if every run passes, and the torch that is installed here still shows it: a script
    that fails nowhere proves nothing.  Raises what `survey` does.
    """
    here = ReleaseToTry(releases.installed().version, HERE)
    judge, _ = _judge(store, compile, [here], options)
    new = judge.release(release)
    if new.state != "passes":
        return Rechecked(new)
    return Rechecked(new, judge.release(here))


def to_recheck(python: str) -> ReleaseToTry:
    """Return the torch of an interpreter.  Raises UsageError for a path that is not a Python."""
    return _of_environment(environments.look_into(python))


def _judge(
    store: Store, compile: Compile, tried: Sequence[ReleaseToTry], options: SurveyOptions
) -> tuple[_Judge, str]:
    """Return the judge for runs of the smallest case, and the torch version that recorded it."""
    known = MinifyOptions(imports=options.imports, trust=options.trust)
    case, story = best_known(store, compile, None, known)
    if story.signature.failure_class == "script":
        raise UnsupportedError(
            "The case was reduced for a command of yours, and other releases are judged without "
            "it: run the script that 'export' writes with each of them."
        )
    recorded = story.versions.get("torch", "")
    script = _script(case, story, recorded, tried, options)
    return _Judge(script, case, story, options), recorded


def _script(
    case: AnyCase,
    story: FailureSummary,
    recorded: str,
    tried: Sequence[ReleaseToTry],
    options: SurveyOptions,
) -> Script:
    """Return the form of the script that shows the failure under the torch that recorded it."""
    same = [one for one in tried if _public(one.torch) == _public(recorded) and one.interpreter]
    interpreter = (same[0].interpreter if same else None) or HERE
    asked = ExportOptions(
        Path(),
        imports=options.imports,
        trust=options.trust,
        say=options.say,
        interpreter=interpreter,
    )
    return best_form(case, story, asked)[0]


@dataclass(frozen=True)
class _Judge:
    """The check of one run of the script, read as a result for a release."""

    script: Script
    case: AnyCase
    story: FailureSummary
    options: SurveyOptions

    def release(self, release: ReleaseToTry) -> Tried:
        """Run the script as often as it is wanted; once is enough where nothing can be judged."""
        if release.interpreter is None:
            self._say(release, f"can't be judged: {release.reason}")
            return Tried(_public(release.torch), reason=release.reason)
        runs: list[Run] = []
        exact = True
        for number in range(1, self.options.runs + 1):
            result = self._check(release.interpreter)
            runs.append(run_of(result))
            exact = exact and (result.exact or runs[-1].state == "passes")
            self._say(release, f"run {number} of {self.options.runs}: {runs[-1].detail}")
            if runs[-1].state == "unjudged":
                break
        found = runs if exact else self._without_compiler(runs, release.interpreter)
        return Tried(_public(release.torch), tuple(found))

    def _say(self, release: ReleaseToTry, text: str) -> None:
        self.options.say(f"torch {release.torch}: {text}")

    def _check(self, interpreter: Interpreter, *, eager: bool = False) -> CheckResult:
        return check(
            self.script.text,
            self.story.signature,
            self.case.imports,
            trust=self.options.trust,
            interpreter=interpreter,
            eager=eager,
        )

    def _without_compiler(self, runs: list[Run], interpreter: Interpreter) -> list[Run]:
        """Return the runs, unless eager mode fails as well: then the compiler has no part in it.

        Eager mode is not run if one failed with the very same innermost frame of torch.
        """
        failing = [run for run in runs if run.state in ("same", "other")]
        if not failing or not self.case.eager or "torch.compile(" not in self.script.text:
            return runs
        eager = self._check(interpreter, eager=True)
        if eager.observed is None and eager.exit_status == 0:
            return runs
        why = f"without torch.compile it fails as well: {eager.detail}"
        return [replace(run, state="unjudged", detail=why) for run in runs]


def run_of(result: CheckResult) -> Run:
    """Return the result of one run of a script, as a run under a release."""
    if result.holds:
        return Run("same", result.detail)
    if result.observed is None and result.exit_status == 0 and not result.denied:
        return Run("passes", result.detail)
    if result.observed is None or result.denied or result.timed_out:
        return Run("unjudged", result.detail)
    if result.observed.is_kill:
        return Run("unjudged", f"{result.detail}, as a rule for want of memory")
    if result.chain and not _reaches_compiler(result):
        return Run("unjudged", f"it fails before anything is compiled: {result.detail}")
    return Run("other", result.detail)


def _reaches_compiler(result: CheckResult) -> bool:
    modules = (f"{module}." for error in result.chain for module, _ in error.frames)
    return any(module.startswith(_COMPILER) for module in modules)
