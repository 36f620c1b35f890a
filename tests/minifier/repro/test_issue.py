"""The text of an issue has one structure, whatever the store and the run say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.escaping.nasty import EVERYTHING, FRAGMENTS, TEXTS, with_every_fragment
from tests.minifier.hand_made import chain
from tests.minifier.scripts.test_script import CASES, without_imports
from torchreel.errors import DamagedStore
from torchreel.escaping.characters import is_visible
from torchreel.minifier.bisect.results import Bisection, StepResult
from torchreel.minifier.bisect.steps import BisectStep
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.repro.check import CheckResult
from torchreel.minifier.repro.export import _header
from torchreel.minifier.repro.failure_summary import FailureSummary
from torchreel.minifier.repro.issue import issue
from torchreel.minifier.repro.title import title
from torchreel.minifier.results.explanations import Explanation
from torchreel.minifier.scripts.script import Script, compile_form, with_header
from torchreel.minifier.scripts.validation.issues import check_issue
from torchreel.releases.results import Run, State, Survey
from torchreel.releases.results import Tried as Release
from torchreel.store.failures.signature import CLASSES, Signature, wrong_result_signature
from torchreel.store.records import Reduction


@cache
def the_case() -> Case:
    return without_imports(CASES["inference"]())


def story(text: str, kind: str = "exception", stage: str = "") -> FailureSummary:
    """A story in which every text is that one."""
    signature = Signature(
        kind, stage or text, text, (text, text), (text,), text, signal=text  # type: ignore[arg-type]
    )  # fmt: skip
    step = BisectStep(text, text, 3)
    return FailureSummary(
        signature=signature,
        frame=text,
        message=text,
        environment={
            "torch": text,
            "platform": text,
            "env:OMP_NUM_THREADS": text,
            f"env:{text}": text,
        },
        before=3,
        reduction=Reduction(1, 1, "a", "b", text, 4, 0, 2.6, 1),
        other_failures=(signature,),
        explanation=Explanation((text,), False, text, (text, text)),
        bisection=Bisection(text, text, 3, text, text, (StepResult(step, False, text, text),)),
        releases=Survey(text, (_release(text, "other"), _release(text, "same"))),
    )


def _release(text: str, state: State) -> Release:
    return Release(text, (Run(state, text), Run("passes", text)))


def written(text: str, kind: str = "exception", stage: str = "", *, holds: bool = False) -> str:
    result = CheckResult(holds, holds, None, 1, text, text, text)
    return issue(
        the_case(), Script("compile", text), result, story(text, kind, stage), (1, 2), text
    )


def structure(text: str) -> list[tuple[str, str]]:
    """All tokens, and the text of those that are not code."""
    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        for inner in (token, *(token.children or [])):
            plain = inner.type in ("text", "html_block") and "Suggested title" not in inner.content
            found.append((inner.type, inner.content if plain else ""))
    return found


@settings(deadline=None)  # the first example compiles
@given(TEXTS.filter(str.strip), st.sampled_from(CLASSES), st.booleans())
def test_no_text_changes_the_structure_of_an_issue(text: str, kind: str, holds: bool) -> None:
    found = check_issue(written(text, kind, holds=holds))
    assert structure(found) == structure(written("a", kind, holds=holds))


def test_no_folder_of_the_check_is_in_a_log() -> None:
    """Nor at the beginning of a line, where Python puts a warning."""
    log = "/tmp/torchreel-check-x/empty/repro.py:24: UserWarning: no\n"
    result = CheckResult(True, True, None, 1, log, "")
    summary = FailureSummary(Signature("exception", "joint", "", ("KeyError",)))
    text = issue(
        SourceCase("torch.compile(f)(x)"), Script("source", "import torch\n"), result, summary
    )
    assert "\nrepro.py:24: UserWarning: no\n" in text
    assert "torchreel-check" not in text


def test_the_log_begins_at_the_script() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "/x/torchreel/minifier/repro/runner.py", line 1, in <module>\n'
        "    main()\n"
        '  File "<frozen runpy>", line 2, in run_path\n'
        '  File "/tmp/y/repro.py", line 3, in <module>\n'
        "    fn(x)\n"
        "ValueError: no\n"
    )
    found = written(log, holds=True)
    assert "runner.py" not in found.partition("### Error logs")[2].partition("### ")[0]
    assert (
        "Traceback (most recent call last):\n"
        '  File "repro.py", line 3, in <module>\n    fn(x)\nValueError: no'
    ) in found


@pytest.mark.parametrize("holds", [False, True])
def test_an_issue_with_everything_in_it_is_one(holds: bool) -> None:
    for text, kind in [*product(FRAGMENTS, CLASSES[:1]), *product([EVERYTHING], CLASSES)]:
        found = written(text, kind, "dynamo", holds=holds)
        assert check_issue(found) == found
        assert is_visible(found)
        assert found.partition("\n")[0].count("-->") == 1


@with_every_fragment
def test_no_text_changes_the_program(text: str) -> None:
    case, harmless = the_case(), Signature("exception", "lowering")
    plain = compile_form(case, harmless, ["a"])
    told = replace(story(text), signature=replace(story(text).signature, stage="lowering"))
    header = _header(case, told)
    script = with_header(compile_form(case, harmless, header), header, _header(case, told, text))
    for one, other in ((plain.text, script.text), (plain.test, script.test)):
        code = [line for line in other.split("\n") if not line.startswith("#")]
        assert code == [line for line in one.split("\n") if not line.startswith("#")]
        assert is_visible(other)
        assert "coding:" not in other
        assert "coding=" not in other


def test_a_workaround_of_a_store_is_entries_of_a_config_alone() -> None:
    line = "torch._inductor.config.cpp.simdlen = 0"
    kept = Explanation((line,), True).to_json()
    assert Explanation.from_json(kept).workaround == (line,)
    for other in ("import os", f"{line}; import os", f"{line}\nimport os", "torch.x = ' '"):
        with pytest.raises(DamagedStore):
            Explanation.from_json({**kept, "workaround": [line, other]})


def test_the_title_of_a_wrong_result_names_what_is_called() -> None:
    """Unless that says nothing, or is no name."""
    wrong = wrong_result_signature("values")
    small = chain(["sin", "add", "sin"])
    assert title(wrong, small) == "torch.compile computes a wrong result (values): sin, add"
    without = "torch.compile computes a wrong result (values)"
    assert title(wrong, chain(["sin", "cos", "tan", "exp", "log"])) == without
    for odd in ("sin\n# coding: x", "s\u0456n", "s" * 70, "sin\n"):
        assert title(wrong, chain([odd])) == without
    assert title(wrong) == without


def test_an_issue_names_what_the_script_imports() -> None:
    """And says that only torch can be imported where that is so."""
    case = replace(the_case(), imports=("mine",))
    result = CheckResult(True, True, None, 1, "", "as recorded")
    alone = issue(case, Script("compile", "import torch\n"), result, story("x"))
    assert "in which only torch can be imported" in alone
    text = "import torch\nimport mine\n"
    company = issue(case, Script("compile", text), result, story("x"))
    assert "in which only torch, `mine` and what it needs can be imported" in company


@pytest.mark.parametrize("caches", [True, False])
def test_an_issue_says_that_caches_are_needed(caches: bool) -> None:
    case = SourceCase("import torch\ntorch.compile(f)(x)", whole=True, caches=caches)
    result = CheckResult(True, True, None, 1, "", "")
    summary = FailureSummary(Signature("exception", "joint", "", ("KeyError",)))
    text = issue(case, Script("source", case.text), result, summary)
    assert ("comes from the caches of compiled code" in text) == caches
    assert "\n\n\n" not in text.partition("```python")[0]
    assert any("empty caches" in line for line in _header(case, summary)) == caches


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("torch.func.hessian(f)(torch.ones(2))", ": torch.func.hessian"),
        ("F.relu(torch.trace(x))\ntorch.manual_seed(0)", ": F.relu, torch.trace"),
        ("torch.randn(2).sum()", ""),
        ("torch.a(); torch.b(); torch.c(); torch.d(); torch.e()", ""),
        ("torch.Größe(x)", ""),
    ],
)
def test_a_title_names_what_a_small_program_calls(body: str, named: str) -> None:
    case = SourceCase(f"import torch\n{body}\ntorch.compile(f)(torch.tensor([1]))\n")
    wrong = wrong_result_signature("values", stage="dynamo")
    what = "A program does something else when it is compiled (values)"
    assert title(wrong, case) == what + named


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("torch.compile(f, backend='eager')(x)", "Dynamo traces a program"),
        ("re.compile('x')\ncompile(f, backend='eager')(x)", "Dynamo traces a program"),
        ("torch.compile(f)(x)", "A program does something else when it is compiled"),
        ("torch.compile(f, backend='eager')(x)\nm.compile()", "A program does something else"),
        ("@torch.compile\ndef f(x): return x", "A program does something else"),
    ],
)
def test_dynamo_is_blamed_where_nothing_is_compiled_after_it(program: str, said: str) -> None:
    case, signature = SourceCase(program), wrong_result_signature("values", stage="dynamo")
    assert title(signature, case).startswith(said)
    result = CheckResult(True, True, 1, "", "", "", "")
    text = issue(case, Script("source", program), result, FailureSummary(signature))
    assert ("after Dynamo" in text) == said.startswith("Dynamo")
