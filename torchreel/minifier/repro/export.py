"""The export of a case: which form of the script is taken, and its files.

Lives here: `export` (the best case that a store knows of), `export_case` and `best_form`. Not here:
the forms (`scripts`), the check (`check`), the issue (`issue`). Called by `torchreel export` and
`torchreel minify`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torchreel.errors import UnsupportedError, UntrustedError, UsageError
from torchreel.minifier.bisect import Bisection
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.source_case import ANYTHING, SourceCase
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro.check import HERE, CheckResult, Interpreter, check
from torchreel.minifier.repro.collect_env import collect_env
from torchreel.minifier.repro.failure_summary import (
    FailureSummary,
    best_known,
    summary_of_other_failure,
)
from torchreel.minifier.repro.files import FORMATS, refuse_unwritable, write_files
from torchreel.minifier.repro.issue import issue
from torchreel.minifier.repro.regression import check_as_test, text_of_test
from torchreel.minifier.repro.title import headline
from torchreel.minifier.results.explanations import Explanation
from torchreel.minifier.scripts.script import (
    Script,
    compile_form,
    graph_form,
    refuse_untrusted,
    waiting,
    with_header,
)
from torchreel.minifier.scripts.settings import left_out
from torchreel.minifier.scripts.source_form import comparing_forms, source_form
from torchreel.minifier.scripts.validation.issues import check_issue
from torchreel.minifier.storage.best_cases import larger_cases
from torchreel.minifier.storage.findings import latest_finding
from torchreel.minifier.storage.other_failures import find_other_failure
from torchreel.releases.results import Survey
from torchreel.store import Store, queries
from torchreel.store.documents.kinds import as_object
from torchreel.store.failures.hang_limit import recorded_limit
from torchreel.store.records import Compile, Failure

Say = Callable[[str], None]


@dataclass(frozen=True)
class ExportOptions:
    """The choices of an export: folder, files, and whether they may be overwritten."""

    directory: Path
    formats: tuple[str, ...] = tuple(FORMATS)
    force: bool = False
    imports: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """The user's own judge of scripts, for a case that was reduced for one. Trusted."""
    checks: int = 1
    """The number of runs of the script, each in a fresh process."""
    trust: bool = False
    """True if code from the store may be run: a failure of Dynamo's own is a program."""
    hang_after: float | None = None
    """Seconds after which a run counts as hung, where the user said so."""
    say: Say = field(default=lambda text: None)
    """Is called with what is being done: a check takes as long as the compile that it repeats."""
    interpreter: Interpreter = HERE
    """The interpreter with which a form of the script has to show the failure."""


@dataclass(frozen=True)
class Exported:
    """The files that were written, and whether the script shows the failure."""

    files: tuple[Path, ...]
    script: Script
    check: CheckResult
    story: FailureSummary
    shown: int = 1
    """In how many of `runs` the script showed the failure."""
    runs: int = 1
    imports: tuple[str, ...] = ()
    """Modules of the user's that the script imports besides torch."""
    test: CheckResult | None = None
    """The result of `test_repro.py`, if it was written and the script holds."""
    own_code: tuple[str, ...] = ()
    """Names of passes and entries of tables of the program's own, which no script has."""


def export(
    store: Store,
    compile: Compile,
    options: ExportOptions,
    failure: Failure | None = None,
    best: AnyCase | None = None,
) -> Exported:
    """Export the simplest case known of a compile's failure: a reduced one, if there is any.

    `failure` says which one is meant, where the compile has several. `best` is a case of it that a
    full disk may have kept out of the store.

    Raises UsageError when files would be overwritten or the compile did not fail, and
    `UnsupportedError` when no form of a script can hold the case.
    """
    refuse_overwriting(options)
    case, story = best_known(store, compile, failure, _reduction_options(options))
    if best is not None and sort_key(best) < sort_key(case):
        case = best
    failure = failure or queries.failure_of(store, compile)
    assert failure is not None, "its case is known"
    larger = partial(_larger, store, failure, case, options.imports)
    return export_case(case, _with_findings(store, case, story), options, larger)


def _larger(
    store: Store, failure: Failure, case: AnyCase, imports: tuple[str, ...]
) -> list[AnyCase]:
    return [one.with_imports(imports) for one in larger_cases(store, failure, case)]


def _with_findings(store: Store, case: AnyCase, story: FailureSummary) -> FailureSummary:
    """Add what `minify`, `bisect` and `releases` found out about the case."""
    explanation, bisection = (latest_finding(store, k, case) for k in ("explanation", "bisection"))
    releases = latest_finding(store, "releases", case)
    return replace(
        story,
        explanation=None if explanation is None else Explanation.from_json(explanation),
        bisection=None if bisection is None else Bisection.from_json(bisection),
        releases=None if releases is None else Survey.from_json(releases),
    )


def export_other_failure(store: Store, number: int, options: ExportOptions) -> Exported:
    """Export another failure that a reduction met, as the smallest case that showed it.

    Raises what `export` does, and UsageError when there is none of that number.
    """
    refuse_overwriting(options)
    found = find_other_failure(store, number, trust=options.trust)
    case = found.case.with_imports(options.imports)
    return export_case(case, summary_of_other_failure(store, found), options)


def _reduction_options(options: ExportOptions) -> MinifyOptions:
    return MinifyOptions(imports=options.imports, trust=options.trust)


def refuse_overwriting(options: ExportOptions) -> None:
    """Raise UsageError when a file is there already, and may not be overwritten.

    Raises RefusedError where none can be written.
    """
    unknown = [name for name in options.formats if name not in FORMATS]
    if unknown:
        raise UsageError(f"There is no format {unknown[0]!r}: use {', '.join(FORMATS)} or all.")
    found = [options.directory / FORMATS[name] for name in options.formats]
    there = [path for path in found if path.exists()]
    if there and not options.force:
        raise UsageError(
            f"{there[0]} exists already: use --force to overwrite it, or -o to write elsewhere."
        )
    refuse_unwritable(options.directory)


def export_case(
    case: AnyCase,
    story: FailureSummary,
    options: ExportOptions,
    larger: Callable[[], Sequence[AnyCase]] = list,
) -> Exported:
    """Write a case as a script that shows the failure when it runs by itself, and as an issue.

    If no form of its script shows the failure, the script is that of a `larger` case which does.
    """
    case, script, result = _shown(case, story, options, larger)
    script, seen = _repeated(case, story, script, result, options)
    shown, runs = sum(found.holds for found in seen), len(seen)
    result = next((found for found in seen if found.holds), result)
    used = script.imports(case.imports)
    tested = None
    judged_by_torch = story.signature.failure_class != "script"
    if "test" in options.formats and result.holds and judged_by_torch:
        options.say("running test_repro.py in a fresh process")
        tested = check_as_test(
            script,
            story.signature,
            used,
            options.command,
            trust=options.trust,
            accelerator=story.accelerator,
        )
    machine = ""
    if "issue" in options.formats:
        options.say("asking torch.utils.collect_env about this machine")
        machine = collect_env(options.interpreter.path)
    makers = {
        "repro": lambda: script.text,
        "issue": lambda: check_issue(issue(case, script, result, story, (shown, runs), machine)),
        "test": lambda: text_of_test(script),
    }
    texts = {name: makers[name]() for name in options.formats}
    files = write_files(options.directory, texts)
    return Exported(files, script, result, story, shown, runs, used, tested, _own_code(case))


def _shown(
    case: AnyCase,
    story: FailureSummary,
    options: ExportOptions,
    larger: Callable[[], Sequence[AnyCase]],
) -> tuple[AnyCase, Script, CheckResult]:
    """Return the first case whose script shows the failure, with that; else the first of all.

    Raises what `best_form` does where none has a script.
    """
    first: tuple[AnyCase, Script, CheckResult] | UnsupportedError
    try:
        first = case, *best_form(case, story, options)
    except UnsupportedError as error:
        first = error
    if isinstance(first, tuple) and (first[2].holds or _lacks_code(case)):
        return first
    for one in larger():
        options.say(f"going back to a case that failed before it was this small: {one.summary}")
        with suppress(UnsupportedError):
            script, result = best_form(one, story, options)
            if result.holds:
                return one, script, result
    if isinstance(first, UnsupportedError):
        raise first
    return first


def _lacks_code(case: AnyCase) -> bool:
    """Return True if a script of a case, or of one that it came from, is without code it needs."""
    return isinstance(case, Case) and bool(left_out(case))


def _own_code(case: AnyCase) -> tuple[str, ...]:
    known = case.checkpoint.extra.get("objects") if isinstance(case, Case) else None
    names = as_object(known)
    return tuple(name for name in names if not name.startswith(("subclass.", "opaque:")))


def _repeated(
    case: AnyCase,
    story: FailureSummary,
    script: Script,
    result: CheckResult,
    options: ExportOptions,
) -> tuple[Script, list[CheckResult]]:
    """Return the script with the message that it gave, run as often as wanted."""
    seen = [result]
    if not result.holds:
        return script, seen
    script = with_header(script, _header(case, story), _header(case, story, result.message))
    for number in range(2, options.checks + 1):
        seen.append(_checked(case, story, script, options))
        options.say(f"run {number} of {options.checks}: {seen[-1].detail}")
    return script, seen


def _unless_by_itself(
    case: AnyCase, story: FailureSummary, script: Script, options: ExportOptions
) -> CheckResult:
    """Check a script; one that compares a program holds only if eager mode twice does the same."""
    result = _checked(case, story, script, options)
    if not (result.holds and isinstance(case, SourceCase) and case.observes):
        return result
    options.say("running it once more without torch.compile")
    control = _checked(case, story, script, options, eager=True)
    if not control.holds:
        return result
    what = f"it shows the same without torch.compile: {control.detail}"
    return replace(result, holds=False, exact=False, detail=what)


def _checked(
    case: AnyCase,
    story: FailureSummary,
    script: Script,
    options: ExportOptions,
    *,
    eager: bool = False,
) -> CheckResult:
    """Check a script, with the modules that it imports and no others."""
    result = check(
        script.text,
        story.signature,
        script.imports(case.imports),
        options.command,
        trust=options.trust,
        interpreter=options.interpreter,
        eager=eager,
        accelerator=story.accelerator,
    )
    left = left_out(case) if isinstance(case, Case) and not result.holds else []
    if not left:
        return result
    what = f"{result.detail}; the script is without {', '.join(left)}, which no script can hold"
    return replace(result, detail=what)


def best_form(
    case: AnyCase, story: FailureSummary, options: ExportOptions
) -> tuple[Script, CheckResult]:
    """Return the first form that shows the very failure; else one that shows the same error; else
    any.

    Raises `UntrustedError` for a case that is code, unless it is trusted, and `UnsupportedError`
    for one that no form of a script can hold.
    """
    refuse_untrusted(case, trust=options.trust)
    tried: list[tuple[Script, CheckResult]] = []
    refused: list[str] = []
    say = options.say
    seconds = options.hang_after or recorded_limit(story.message)
    for script in waiting(_forms(case, story, refused), story.signature, seconds):
        say(f"running the {script.form} form of the repro in a fresh process")
        result = _unless_by_itself(case, story, script, options)
        say(
            f"{'the same failure' if result.holds else 'not the recorded failure'}: {result.detail}"
        )
        tried.append((script, result))
        if result.exact:
            break
    if not tried:
        reasons = "; ".join(dict.fromkeys(refused))  # often the same for every form
        raise UnsupportedError(f"The case can't be written as a script: {reasons}.")
    return max(tried, key=lambda pair: (pair[1].exact, pair[1].holds))


def _forms(case: AnyCase, story: FailureSummary, refused: list[str]) -> Iterator[Script]:
    if isinstance(case, SourceCase) and case.observes == ANYTHING:
        refused.append("what it computes or leaves is only known once it has been reduced")
    elif isinstance(case, SourceCase) and case.observes:
        yield from comparing_forms(case, _header(case, story))
    elif isinstance(case, SourceCase):
        yield source_form(case, story.signature, _header(case, story))
    if not isinstance(case, Case):
        return
    known: set[str] = set()
    bare = case.with_imports(())
    ways: list[tuple[Callable[..., Script], Case]]
    ways = [(compile_form, case), (partial(compile_form, careful=True), case), (graph_form, case)]
    # A module that the user named may not be needed: the smallest form is tried without.
    for form, one in [(compile_form, bare), *ways] if case.imports else ways:
        try:
            script = form(one, story.signature, _header(case, story))
        except (UnsupportedError, UntrustedError) as error:
            refused.append(str(error))
            continue
        if script.text not in known:
            yield script
        known.add(script.text)


# The system and the processor; what else a platform is called is nobody's business.
_SYSTEM = re.compile(r"^\w+(?=-)|x86_64|aarch64|arm64|AMD64")

# What a script does while the bug is there, where it is no exception.
_ENDS = {
    "crash": "The process dies",
    "hang": "Exit status 1, and the stacks of all threads,",
    "memory": "The process runs out of memory",
}


def _header(case: AnyCase, story: FailureSummary, message: str = "") -> Sequence[str]:
    versions, signature = story.versions, story.signature
    names = {"torch": "torch ", "python": "Python "}
    known = [name + versions[key] for key, name in names.items() if key in versions]
    known += [" ".join(_SYSTEM.findall(versions.get("platform", "")))]
    how = _ENDS.get(signature.failure_class, "Exit status 1")
    return [
        headline(signature, message, case),
        "",
        ", ".join(filter(None, known)),
        f"signature {signature.digest[:12]}; {_made(case, story)}",
        *_needs(case),
        f"{how} while the bug is there; exit status 0 when it is gone.",
    ]


def _needs(case: AnyCase) -> list[str]:
    if isinstance(case, SourceCase) and case.caches:
        return ["It begins with empty caches of compiled code; it was not seen to fail without."]
    return []


def _made(case: AnyCase, story: FailureSummary) -> str:
    if story.reduction is None:
        return f"recorded by torchreel, not reduced: {case.call_nodes} {case.unit}s"
    return (
        f"reduced by torchreel from {story.before} to {case.call_nodes} {case.unit}s "
        f"in {story.reduction.oracle_runs} runs"
    )
