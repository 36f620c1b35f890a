"""Export: a case as a script that needs torch alone, checked, and as the text of an issue.

Lives here: `export` (the best case that a store knows of) and `export_case`: which form of the
script is taken, and the files. Not here: the forms (`script`), the check (`check`), the issue
(`issue`). Called by `torchreel export` and `torchreel minify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchreel.errors import UnsupportedError, UsageError
from torchreel.minifier.case import Case
from torchreel.minifier.export.check import CheckResult, check
from torchreel.minifier.export.issue import issue
from torchreel.minifier.export.script import Script, compile_form, graph_form
from torchreel.minifier.export.story import Story, best_known, title
from torchreel.store import Store
from torchreel.store.records import Compile, Failure

__all__ = ["FORMATS", "CheckResult", "ExportOptions", "Exported", "export", "export_case"]

FORMATS = {"repro": "repro.py", "issue": "issue.md"}
Say = Callable[[str], None]


@dataclass(frozen=True)
class ExportOptions:
    """Where to, what, and whether files may be overwritten."""

    directory: Path
    formats: tuple[str, ...] = tuple(FORMATS)
    force: bool = False
    imports: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """The user's own judge of scripts, for a case that was reduced for one. Trusted."""
    say: Say = field(default=lambda text: None)
    """Told what is being done: a check takes as long as the compile that it repeats."""


@dataclass(frozen=True)
class Exported:
    """What was written, and whether the script shows the failure."""

    files: tuple[Path, ...]
    script: Script
    check: CheckResult
    story: Story


def export(
    store: Store, compile: Compile, options: ExportOptions, failure: Failure | None = None
) -> Exported:
    """Export the simplest case known of a compile's failure: a reduced one, if there is any.

    `failure` says which one is meant, where the compile has several.

    Raises UsageError when files would be overwritten or the compile did not fail, and
    `UnsupportedError` when no form of a script can hold the case.
    """
    refuse_overwriting(options)
    case, story = best_known(store, compile, failure, options.imports)
    return export_case(case, story, options)


def refuse_overwriting(options: ExportOptions) -> None:
    """Raises UsageError when a file is there already, and may not be overwritten."""
    unknown = [name for name in options.formats if name not in FORMATS]
    if unknown:
        raise UsageError(f"There is no format {unknown[0]!r}: use {', '.join(FORMATS)} or all.")
    found = [options.directory / FORMATS[name] for name in options.formats]
    there = [path for path in found if path.exists()]
    if there and not options.force:
        raise UsageError(
            f"{there[0]} exists already: use --force to overwrite it, or -o to write elsewhere."
        )


def export_case(case: Case, story: Story, options: ExportOptions) -> Exported:
    """Write a case as a script that shows the failure when it runs by itself, and as an issue."""
    script, result = _best_form(case, story, options)
    texts = {"repro": script.text, "issue": issue(case, script, result, story)}
    options.directory.mkdir(parents=True, exist_ok=True)
    files = []
    for name in options.formats:
        path = options.directory / FORMATS[name]
        path.write_text(texts[name], encoding="utf-8")
        files.append(path)
    return Exported(tuple(files), script, result, story)


def _best_form(case: Case, story: Story, options: ExportOptions) -> tuple[Script, CheckResult]:
    """The first form that shows the very failure; else one that shows the same error; else any."""
    tried: list[tuple[Script, CheckResult]] = []
    refused: list[str] = []
    say = options.say
    for script in _forms(case, story, refused):
        say(f"running the {script.form} form of the repro in a fresh process")
        result = check(script.text, story.signature, case.imports, options.command)
        say(
            f"{'the same failure' if result.holds else 'not the recorded failure'}: {result.detail}"
        )
        tried.append((script, result))
        if result.exact:
            break
    if not tried:
        raise UnsupportedError(f"The case can't be written as a script: {'; '.join(refused)}.")
    return max(tried, key=lambda pair: (pair[1].exact, pair[1].holds))


def _forms(case: Case, story: Story, refused: list[str]) -> Iterator[Script]:
    for form in (compile_form, graph_form):
        try:
            script = form(case, story.signature, _header(case, story))
        except UnsupportedError as error:
            refused.append(str(error))
            continue
        yield script


# What a script does while the bug is there, where it is no exception.
_ENDS = {
    "crash": "The process dies",
    "hang": "Exit status 1, after a minute,",
    "memory": "The process runs out of memory",
}


def _header(case: Case, story: Story) -> Sequence[str]:
    versions, signature = story.versions, story.signature
    names = {"torch": "torch ", "python": "Python ", "platform": ""}
    known = [name + versions[key] for key, name in names.items() if key in versions]
    how = _ENDS.get(signature.failure_class, "Exit status 1")
    return [
        title(signature),
        "",
        ", ".join(known),
        f"signature {signature.digest[:12]}; {_made(case, story)}",
        f"{how} while the bug is there; exit status 0 when it is gone.",
    ]


def _made(case: Case, story: Story) -> str:
    if story.reduction is None:
        return f"recorded by torchreel, not reduced: {case.call_nodes} call nodes"
    return (
        f"reduced by torchreel from {story.before} to {case.call_nodes} call nodes "
        f"in {story.reduction.oracle_runs} runs"
    )
