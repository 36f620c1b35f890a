"""`issue.md`: the report in the form that PyTorch's template for torch.compile bugs asks for."""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from torchreel.minifier.bisect.steps import Step
from torchreel.minifier.export.check import CheckResult
from torchreel.minifier.export.script import Script
from torchreel.minifier.export.story import Story, headline, title
from torchreel.minifier.kinds import AnyCase

_LOG_LINES = 60  # of a traceback; the rest is in the recording
# Where the interpreter and the checked script lie is nobody's business, and the same for all.
_PLACES = re.compile(r"(?<=[\"' (])/[^\"'\n ]*/(?:site-packages/|(?=repro\.py))")


def issue(
    case: AnyCase, script: Script, check: CheckResult, story: Story, shown: tuple[int, int] = (1, 1)
) -> str:
    """The text of the issue; `shown` is in how many runs of how many the script failed."""
    log = _log(check, story)
    return _template().render(
        title=_line(headline(story.signature, check.message)),
        shown=shown,
        story=story,
        script=script.text,
        check=check,
        eager=case.eager,
        log=log,
        size=f"{case.call_nodes} {case.unit}s",
        fence="```",
    )


def _log(check: CheckResult, story: Story) -> str:
    """What the repro printed; what was recorded where that is another error."""
    text = check.output if check.holds and check.output.strip() else story.message
    lines = _PLACES.sub("", text).rstrip().splitlines()
    left = len(lines) - _LOG_LINES
    return "\n".join(["..." if left > 0 else "", *lines[-_LOG_LINES:]]).lstrip("\n")


def _line(text: object) -> str:
    """One line without controls, in which neither code spans nor comments can be closed."""
    found = "".join(c if c.isprintable() else " " for c in str(text))
    return " ".join(found.replace("`", "'").replace("-->", "->").split())


def _fenced(text: object) -> str:
    """Text between fences, which it can't close."""
    found = re.sub(r"[^\S\n]*$", "", str(text).rstrip(), flags=re.MULTILINE)
    clean = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in found)
    return re.sub(r"^(\s*)```", r"\1'''", clean, flags=re.MULTILINE)


def _variables(step: Step) -> str:
    return " ".join(f"{name}={value}" for name, value in step.variables().items())


@cache
def _template() -> Template:
    # Plain text, not HTML: nothing is escaped for a browser; `line` and `fenced` do what is needed.
    environment = Environment(
        loader=PackageLoader("torchreel.minifier.export"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "line": _line, "fenced": _fenced, "titled": title, "variables": _variables,
    }  # fmt: skip
    return environment.get_template("issue.md.jinja")
