"""Places of torch that only report, and what the program's own part is there."""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel
from torchreel.analysis.triage.definitions import form_of
from torchreel.analysis.triage.failures import SeenFailure, failures_of
from torchreel.analysis.triage.grouping import group
from torchreel.analysis.triage.program_part import (
    NO_PART,
    ProgramPart,
    program_part,
    structure,
)
from torchreel.recorder.settings import Settings
from torchreel.store import Signature, Store

Program = Callable[..., Any]
Recorded = Callable[..., SeenFailure]


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    """Record a program that fails to compile, in a store of its own."""
    numbers = count()

    def record(program: Program, *inputs: Any, **options: Any) -> SeenFailure:
        path = tmp_path / f"{next(numbers)}.db"
        torch.compiler.reset()
        with torchreel.record(path), pytest.raises(Exception):  # noqa: B017, PT011
            torch.compile(program, **options)(*(inputs or (torch.ones(4),)))
        with Store.open(path) as store:
            return next(iter(failures_of(store)))

    yield record
    torch.compiler.reset()


def are_one(*failures: SeenFailure) -> bool:
    return len(group(failures)) == 1


# -- programs that Dynamo stops at ---------------------------------------------------------------


def if_sum(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x


def same_in_other_words(given: torch.Tensor) -> torch.Tensor:
    hidden = given.cos() * 3
    return hidden + 2 if hidden.sum() > 7 else hidden


def if_any(x: torch.Tensor) -> torch.Tensor:
    if (x > 3).any():
        return x
    return x + 1


def first_key(x: torch.Tensor) -> torch.Tensor:
    return x * {"a": 1}["scale"]


def second_key(x: torch.Tensor) -> torch.Tensor:
    table: dict[int, float] = {}
    return x.sin() + table[7]


@pytest.mark.parametrize(("one", "other"), [(if_sum, if_any), (first_key, second_key)])
def test_one_report_of_two_statements_is_two_bugs(
    recorded: Recorded, one: Program, other: Program
) -> None:
    failures = recorded(one, fullgraph=True), recorded(other, fullgraph=True)
    assert failures[0].signature.frames[0] == failures[1].signature.frames[0]
    assert not are_one(*failures)


def test_one_statement_in_two_models_is_one_bug(recorded: Recorded) -> None:
    failures = [
        recorded(if_sum, fullgraph=True),
        recorded(same_in_other_words, torch.ones(3, 5), fullgraph=True),
    ]
    assert are_one(*failures)


# -- what the program gives the compiler ---------------------------------------------------------


def fails(gm: Any, inputs: Any) -> Any:
    raise RuntimeError("not supported")


def fails_elsewhere(gm: Any, inputs: Any) -> Any:
    for node in gm.graph.nodes:
        refuse(node)


def refuse(node: Any) -> None:
    raise RuntimeError("not supported")


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def test_two_backends_with_one_text_are_two_bugs(recorded: Recorded) -> None:
    failures = recorded(sine, backend=fails), recorded(sine, backend=fails_elsewhere)
    assert failures[0].signature.matches(failures[1].signature)
    assert not are_one(*failures)


def test_one_backend_is_one_bug_in_every_model(recorded: Recorded) -> None:
    other = recorded(torch.nn.Linear(4, 3), backend=fails)
    assert are_one(recorded(sine, backend=fails), other)


# -- scripts that were made to be merged: one name, one statement, one message --------------------

LOWER = """
import torch

REFUSED = ["WHAT", "conv"]

def is_refused(node):
    return any(word in str(node.target) for word in REFUSED)

def lower(gm, inputs):
    for node in gm.graph.nodes:
        if is_refused(node):
            raise NotImplementedError("this operation is not supported")
    return gm

def fn(x):
    return x.sin().exp()

torch.compile(fn, backend=lower)(torch.ones(SIZE))
"""
INLINE = LOWER.replace("if is_refused(node)", 'if "WHAT" in str(node.target)')
METHOD = """
import torch

class Base:
    refused = "WHAT"

class Lowering(Base):
    def __call__(self, gm, inputs):
        return [self.lower(node) for node in gm.graph.nodes]

    def lower(self, node):
        if self.refused in str(node.target):
            raise ValueError("no kernel")

def fn(x):
    return x.sin().exp()

torch.compile(fn, backend=Lowering())(torch.ones(SIZE))
"""
FAKE = """
import torch

@torch.library.custom_op("traps::WHAT_part", mutates_args=())
def part(x: torch.Tensor) -> torch.Tensor:
    return x.WHAT().clone()

@part.register_fake
def _(x):
    wanted = x.WHAT()
    assert wanted.shape == (1,), "a shape of another size"
    return wanted

torch.compile(lambda x: part(x * 2), fullgraph=True)(torch.ones(SIZE))
"""
BARE = """
import torch

def fn(x):
    whole = x.WHAT()
    found = whole
    if found:
        return x + 1
    return x

torch.compile(fn, fullgraph=True)(torch.ones(SIZE))
"""
ARGUMENT = """
import torch

def check(bad):
    if bad:
        raise ValueError("not a number")

def fn(x):
    check(x.WHAT())
    return x

torch.compile(fn, fullgraph=True)(torch.ones(SIZE))
"""
LINES = """
import torch

def fn(x):
    if (
        x.WHAT() > 1
    ):
        return x + 1
    return x

torch.compile(fn, fullgraph=True)(torch.ones(SIZE))
"""
TRAPS = {
    "a table": LOWER, "a line": INLINE, "a base": METHOD, "an operator": FAKE, "a maker": BARE,
    "an argument": ARGUMENT, "a line of its statement": LINES,
}  # fmt: skip


@pytest.fixture
def ran(tmp_path: Path) -> Iterator[Callable[..., SeenFailure]]:
    """Record a script that fails, in a file and a store of its own."""
    numbers = count()

    def run(text: str, what: str, size: int, redact: str = "default", **files: str) -> SeenFailure:
        number = next(numbers)
        script = tmp_path / f"job{number}" / f"train{number}.py"
        script.parent.mkdir()
        for name, content in files.items():
            (script.parent / f"{name}.py").write_text(content.replace("WHAT", what))
        script.write_text(text.replace("WHAT", what).replace("SIZE", str(size)))
        store = tmp_path / f"{number}.db"
        torch.compiler.reset()
        settings = Settings(redact=redact)
        sys.path.insert(0, str(script.parent))
        try:
            with torchreel.record(store, settings=settings), pytest.raises(Exception):  # noqa: B017, PT011
                runpy.run_path(str(script))
        finally:
            sys.path.remove(str(script.parent))
            for name in files:
                sys.modules.pop(name, None)
        with Store.open(store) as opened:
            return next(iter(failures_of(opened)))

    yield run
    torch.compiler.reset()


@pytest.mark.parametrize("text", TRAPS.values(), ids=TRAPS.keys())
def test_two_scripts_part_by_what_their_functions_are(
    ran: Callable[..., SeenFailure], text: str
) -> None:
    one, other = ("sin", "exp") if "backend" in text else ("sum", "mean")
    failure, different = ran(text, one, 3), ran(text, other, 3)
    if text is not FAKE:  # its operators have names of their own, as one process can't have two
        assert failure.signature.matches(different.signature)
        assert are_one(failure, ran(text.replace("(x", "(given").replace("x.", "given."), one, 4))
    assert not are_one(failure, different)


ALIAS = """
import torch

@torch.library.custom_op("traps::alias", mutates_args=())
def alias(x: torch.Tensor) -> torch.Tensor:
    return WHAT

@alias.register_fake
def _(x):
    return torch.empty_like(x)

def fn(x):
    return alias(x.exp()) * 2

torch.compile(fn)(torch.ones(SIZE))
"""


def test_an_operator_that_has_returned_already_is_the_same_in_every_model(
    ran: Callable[..., SeenFailure],
) -> None:
    larger = ALIAS.replace("x.exp()", "x.sin().exp().cos()")
    failure, again, other = ran(ALIAS, "x", 3), ran(larger, "x", 4), ran(ALIAS, "x.view(-1)", 3)
    assert failure.signature.stage == "run"
    assert failure.signature.matches(other.signature)
    assert are_one(failure, again)
    assert not are_one(failure, other)


def test_a_function_of_another_file_of_the_program_counts(
    ran: Callable[..., SeenFailure],
) -> None:
    refused = LOWER[: LOWER.index("def lower")]
    for imported, call in (
        ("from refusing import is_refused", "is_refused"),
        ("import refusing", "refusing.is_refused"),
    ):
        text = LOWER.replace(refused, f"import torch\n{imported}\n\n")
        text = text.replace("if is_refused", f"if {call}")
        failures = [ran(text, what, 3, refusing=refused) for what in ("sin", "sin", "exp")]
        assert are_one(*failures[:2])
        assert not are_one(*failures[1:])


def test_where_texts_were_redacted_the_graph_counts(ran: Callable[..., SeenFailure]) -> None:
    other = LOWER.replace("x.sin().exp()", "x.exp()")
    failures = [ran(text, what, 3, redact="all") for text, what in ((LOWER, "sin"), (other, "exp"))]
    assert failures[0].signature.matches(failures[1].signature)
    assert not are_one(*failures)
    assert are_one(failures[0], ran(LOWER, "sin", 3, redact="all"))


# -- tracebacks as text --------------------------------------------------------------------------

LOWERING = Signature(
    "exception", "lowering", "", ("AssertionError",), ("torch._inductor.lowering:scatter",), "no"
)


def frame(path: str, function: str, line: str) -> str:
    return f'  File "{path}", line 7, in {function}\n    {line}\n    ~~~^^^\n'


def traceback(*frames: str) -> str:
    return "Traceback (most recent call last):\n" + "".join(frames) + "AssertionError: no\n"


def torch_frame(module: str, function: str, line: str) -> str:
    return frame(f"/x/lib/python3.11/site-packages/torch/{module}.py", function, line)


CALLER = torch_frame("_inductor/lowering", "gather", "check(x, 'a size')")


@pytest.mark.parametrize(
    "line",
    ["assert len(x) == 3", 'raise ValueError("no")', "y = x[0] + 1", "raise NotImplementedError"],
)
def test_a_place_that_decides_is_enough(line: str) -> None:
    text = traceback(CALLER, torch_frame("_inductor/lowering", "scatter", line))
    assert program_part(LOWERING, ["AssertionError"], "no", text) == NO_PART


@pytest.mark.parametrize("line", ["raise error", "raise Bad(message, kind)", "raise"])
def test_of_a_place_that_raises_what_it_was_given_the_caller_counts(line: str) -> None:
    text = traceback(CALLER, torch_frame("_inductor/lowering", "scatter", line))
    part = program_part(LOWERING, ["AssertionError"], "no", text)
    assert part.words == (
        "torch/_inductor/lowering.py:scatter",
        "torch/_inductor/lowering.py:gather",
    )
    assert not part.needs_graph


def test_of_a_place_that_calls_what_it_was_given_the_operation_counts() -> None:
    inner = torch_frame("_inductor/lowering", "scatter", "return func(*args, **kwargs)")
    text = traceback(CALLER, inner)
    assert program_part(LOWERING, ["AssertionError"], "no", text).needs_graph
    told = program_part(LOWERING, ["AssertionError"], "no\ntarget: aten.mm.default", text)
    assert (told.needs_graph, told.words[-1]) == (False, "aten.mm.default")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("assert_size_stride(buf2, (5, ), (1, ), 'torch.ops.aten.u.x')", "torch.ops.aten.u.x"),
        ("assert_size_stride(arg0_1, (5, ), (1, ))", ""),
        ("assert_size_stride(buf2, (5, ), (1, ), 'torch.ops.mine.u.x')", ""),
    ],
    ids=["of torch", "an input", "of the program"],
)
def test_generated_code_names_the_operator_whose_result_it_refused(line: str, told: str) -> None:
    generated = "torch._inductor.runtime.compile_tasks:<generated>"
    run = Signature("exception", "run", "", ("AssertionError",), (generated,), "expected size")
    text = traceback(frame("/cache/ab/cab.py", "call", line))
    part = program_part(run, ["AssertionError"], "expected size", text)
    assert part == (ProgramPart((told,), tells_alone=True) if told else NO_PART)


def test_what_torch_needs_is_no_program() -> None:
    sympy = frame(
        "/x/lib/python3.11/site-packages/sympy/core/expr.py", "f", "raise ValueError('no')"
    )
    inner = torch_frame("_inductor/lowering", "scatter", "x = sympy.f(y + 1)")
    assert program_part(LOWERING, ["ValueError"], "no", traceback(CALLER, inner, sympy)) == NO_PART


def test_a_report_without_a_word_of_the_program_needs_its_graph() -> None:
    part = program_part(LOWERING, ["torch._dynamo.exc.Unsupported"], "no", "")
    assert (part.words, part.needs_graph, part.is_reported) == ((), True, True)
    internal = ["torch._dynamo.exc.InternalTorchDynamoError", "AssertionError"]
    assert program_part(LOWERING, internal, "no", "") == NO_PART


@pytest.mark.parametrize(
    ("line", "other", "alike"),
    [
        ("y = x.sum() + 3", "total = given.sum() + 55", True),
        ("y = x.sum()", "y = x.mean()", False),
        ("y = a + b", "y = a + a", False),
        ("y = d['a']", "y = d['b']", False),
        ('assert x.all(), f"no: {x}"', 'assert z.all(), f"no: {z}"', True),
        ("y = f(x, (", "z = f(w, (", True),
        ("y = '\x00", "z = '\x00", True),
    ],
)
def test_the_structure_of_a_line_has_no_names_and_no_numbers(
    line: str, other: str, alike: bool
) -> None:
    assert (structure(line) == structure(other)) == alike


@pytest.mark.parametrize("piece", ["a", "a, ", "a=b,", "( ", "*a"])
def test_a_line_takes_no_longer_than_it_is_long(piece: str) -> None:
    began = time.process_time()
    for line in (f"raise E({piece * 2000}!", f"return f({piece * 2000}!", f"raise {piece * 2000}"):
        sys.modules[program_part.__module__]._HANDS_ON.match(line)
    assert time.process_time() - began < 5


# -- the text of functions ------------------------------------------------------------------------

NAMES = """\
def f({0}, {1}):
    {2} = 0

    def g():
        nonlocal {2}
        {2} += 1

    match {0}:
        case [{1}, *{3}] if {1}:
            return {3}
        case [{1}] as {3}:
            return {3}
        case {{"a": {1}, **{3}}}:
            return {1}
"""


def test_a_function_has_one_form_whatever_its_variables_are_called() -> None:
    form = form_of(NAMES.format("x", "y", "count", "rest"))
    assert form == form_of(NAMES.format("given", "one", "times", "others"))
    assert form != form_of(NAMES.format("x", "y", "count", "y"))
