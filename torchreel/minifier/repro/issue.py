"""`issue.md`: the report in the form of PyTorch's template for torch.compile bugs.

What comes from the store or from a run stands in code and in one comment (`escaping.markdown`); the
template can't write it otherwise. Not here: what the result is checked for (`validation.issues`).
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache

from jinja2 import PackageLoader, Template

from torchreel.errors import UnsupportedError
from torchreel.escaping.characters import visible
from torchreel.escaping.markdown import Markdown, environment
from torchreel.escaping.shell import with_variables
from torchreel.minifier.bisect.results import Bisection
from torchreel.minifier.bisect.steps import BisectStep
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.repro.check import CheckResult
from torchreel.minifier.repro.failure_summary import FailureSummary
from torchreel.minifier.repro.title import headline, title
from torchreel.minifier.scripts.script import Script

_LOG_LINES = 60  # of a traceback; the rest is in the recording
# Where the interpreter and the checked script lie is nobody's business, and the same for all.
_PLACES = re.compile(
    r"(?:(?<=[\"' (])|^)/[^\"'\n ]*/(?:site-packages/|(?=repro\.py))", re.MULTILINE
)
# The frames above those of the script are the check's own.
_RUNNER = re.compile(
    r'^  File "[^"\n]*torchreel/minifier/repro/runner\.py".*\n'
    r'(?:  (?!File "repro\.py").*\n)*(?=  File "repro\.py")',
    re.MULTILINE,
)


def issue(
    case: AnyCase,
    script: Script,
    check: CheckResult,
    story: FailureSummary,
    shown: tuple[int, int] = (1, 1),
    machine: str = "",
) -> str:
    """Return the text of the issue.

    `shown` is the number of runs in which the script failed, and the number of all runs; `machine`
    is the output of `torch.utils.collect_env` on the machine that ran them.
    """
    log = _log(check, story)
    return _template().render(
        title=headline(story.signature, check.message, case),
        beyond_dynamo=isinstance(case, SourceCase) and not case.ends_with_dynamo,
        shown=shown,
        story=story,
        script=script.text,
        imports=script.imports(case.imports),
        check=check,
        eager=case.eager,
        needs_caches=isinstance(case, SourceCase) and case.caches,
        exports=_ends_with_export(case),
        log=log,
        size=Markdown(f"{case.call_nodes} {case.unit}s"),
        versions=_versions(story),
        machine=_lines(machine),
        commands=_commands(story.bisection),
        titled=title,
    )


def _ends_with_export(case: AnyCase) -> bool:
    with suppress(UnsupportedError):  # a program that ends with neither call
        return isinstance(case, SourceCase) and case.exports
    return False


def _log(check: CheckResult, story: FailureSummary) -> str:
    """Return the output of the repro; the recorded message if the repro shows another error."""
    text = check.output if check.holds and check.output.strip() else story.message
    lines = _RUNNER.sub("", _PLACES.sub("", text)).rstrip().split("\n")
    left = len(lines) - _LOG_LINES
    return "\n".join(["..." if left > 0 else "", *lines[-_LOG_LINES:]]).lstrip("\n")


def _versions(story: FailureSummary) -> str:
    """Return a line for each version and variable, with invisible characters made visible."""
    versions = [f"{key}: {value}" for key, value in story.versions.items()]
    variables = [f"{key}={value}" for key, value in story.variables.items()]
    return "\n".join(map(visible, [*versions, *variables]))


def _lines(text: str) -> str:
    return "\n".join(map(visible, text.splitlines()))


def _commands(found: Bisection | None) -> str:
    """Return the commands that pass and fail; empty where there are none."""
    if found is None or found.number is None or found.passing is None:
        return ""
    ends = {"passes": found.passing, "fails": found.failing}
    return "\n".join(f"{_command(step)}  # {end}" for end, step in ends.items())


def _command(step: BisectStep) -> str:
    return with_variables(step.variables(), "python", "repro.py")


@cache
def _template() -> Template:
    made = environment(PackageLoader("torchreel.minifier.repro"))
    return made.get_template("issue.md.jinja")
