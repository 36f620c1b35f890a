"""The verdict on a described input is torch's own on the real one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

import torchreel
from torchreel.analysis.event_log import CompileEventLog
from torchreel.analysis.guard_check.check import FAIL, PASS, UNKNOWN, judge
from torchreel.analysis.guard_check.code import parse, value_of
from torchreel.analysis.guard_check.inputs import Described, contiguous, parse_input, parse_inputs
from torchreel.errors import UnsupportedError, UsageError
from torchreel.store import Store, queries

Tensor = torch.Tensor


# -- programs and inputs --------------------------------------------------------------------------


def static(x: Tensor, n: int) -> Tensor:
    return x * n


def dynamic(x: Tensor, y: Tensor) -> Tensor:
    if x.shape[0] * 2 > y.shape[0] and x.shape[0] % 4 == 0:
        return x.sum() + y
    return x.sum() - y


def rounded(x: Tensor) -> Tensor:
    if math.ceil(x.shape[0] / 3) > 2:
        return x + max(x.shape[0], x.shape[1])
    return x


def columns(x: Tensor) -> Tensor:
    return x.t().contiguous() + x.stride(0)


def flags(x: Tensor, flag: bool, name: str, scale: float, other: object) -> Tensor:
    if flag and name == "a" and other is None:
        return x * scale
    return x


TENSORS = [
    "f32[4, 3]", "f32[8, 3]", "f32[9, 3]", "f32[4, 1]", "f32[1, 3]", "f32[4]", "f64[4, 3]",
    "i64[4, 3]", "f32[4, 3] requires_grad", "f32[4, 3] strides [1, 4]", "f32[0, 3]",
    "f32[1, 3] strides [7, 1]", "f32[4, 3] parameter",
]  # fmt: skip
VECTORS = ["f32[9]", "f32[3]", "f32[17]", "f32[1]", "f32[2]", "f32[8]"]

Program = tuple[Callable[..., object], Mapping[str, str], bool | None, Mapping[str, list[str]]]
PROGRAMS: dict[str, Program] = {
    "static": (
        static, {"x": "f32[4, 3]", "n": "2"}, None,
        {"x": TENSORS, "n": ["2", "3", "2.0", "True", "None"]},
    ),
    "zero_one": (static, {"x": "f32[1, 3]", "n": "2"}, True, {"x": TENSORS, "n": ["2"]}),
    "dynamic": (
        dynamic, {"x": "f32[8]", "y": "f32[9]"}, True, {"x": VECTORS, "y": VECTORS},
    ),
    "rounded": (rounded, {"x": "f32[9, 3]"}, True, {"x": TENSORS}),
    "columns": (
        columns, {"x": "f32[4, 3] strides [1, 4]"}, True,
        {"x": [*TENSORS, "f32[5, 3] strides [1, 5]", "f32[5, 3] strides [2, 10]"]},
    ),
    "flags": (
        flags, {"x": "f32[4]", "flag": "True", "name": "'a'", "scale": "2.5", "other": "None"},
        None,
        {
            "x": ["f32[4]"], "flag": ["True", "False", "1"], "name": ["'a'", "'b'", "1"],
            "scale": ["2.5", "2", "3.5"], "other": ["None", "0"],
        },
    ),
}  # fmt: skip


def real(text: str) -> object:
    """The input that a text describes."""
    _, found = parse_input(f"x: {text}")
    if not isinstance(found, Described):
        return found
    dtype = getattr(torch, found.dtype)
    tensor = torch.empty_strided(found.size, found.stride, dtype=dtype)
    tensor = tensor.zero_()
    if found.parameter:
        return torch.nn.Parameter(tensor)
    return tensor.requires_grad_() if found.requires_grad else tensor


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A recording of every program, compiled once; its code keeps its guards."""
    path: Path = tmp_path_factory.mktemp("guards") / "run.db"
    torch._dynamo.reset()
    with torchreel.record(path):
        for function, inputs, is_dynamic, _ in PROGRAMS.values():
            torch._dynamo.reset_code(function.__code__)
            compiled = torch.compile(function, backend="eager", dynamic=is_dynamic)
            compiled(*map(real, inputs.values()))
            _GUARDS.append(_debug_get_cache_entry_list(function.__code__)[0].guard_manager)
    with Store.open(path) as opened:
        yield opened
    _GUARDS.clear()


_GUARDS: list[Any] = []


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_the_verdict_is_torchs_own(store: Store, name: str) -> None:
    number = list(PROGRAMS).index(name)
    log = CompileEventLog(store, queries.compiles(store, 1)[number])
    names, choices = zip(*PROGRAMS[name][3].items(), strict=True)
    outcomes = set()
    for texts in itertools.product(*choices):
        described = parse_inputs(f"{n}: {text}" for n, text in zip(names, texts, strict=True))
        judged = judge(log, described)
        own = [guard for guard in judged if _is_of_inputs(guard.expression, guard.type)]
        found = {guard.verdict for guard in own}
        # A size that a tensor of another rank does not have can't be judged; but the rank fails.
        assert UNKNOWN not in found or FAIL in found, (texts, own)
        verdict = FAIL not in found
        arguments = dict(zip(names, map(real, texts), strict=True))
        assert verdict == _GUARDS[number].check(arguments), (texts, own)
        outcomes.add(verdict)
    assert outcomes == {True, False}


def _is_of_inputs(expression: str, type: str) -> bool:
    return expression.startswith("L[") or type in ("SHAPE_ENV", "NO_TENSOR_ALIASING")


def test_what_is_not_described_never_passes(store: Store) -> None:
    """Without any input, nothing passes but what asks for nothing."""
    for row in queries.compiles(store, 1):
        for guard in judge(CompileEventLog(store, row), {}):
            asks = [check for check in guard.checks if check.code]
            assert guard.verdict == (UNKNOWN if asks or guard.type != "SHAPE_ENV" else PASS)


def test_a_reason_says_what_was_expected(store: Store) -> None:
    log = CompileEventLog(store, queries.compiles(store, 1)[0])
    described = parse_inputs(["x: f64[4, 5] requires_grad", "n: 2"])
    (tensor,) = [guard for guard in judge(log, described) if guard.type == "TENSOR_MATCH"]
    assert tensor.verdict == FAIL
    assert tensor.checks[0].reason == (
        "expected dtype torch.float32, found torch.float64; "
        "expected requires_grad False, found True; expected size 3 at 1, found 5; "
        "expected stride 3 at 0, found 5"
    )


def test_a_tensor_elsewhere(store: Store) -> None:
    log = CompileEventLog(store, queries.compiles(store, 1)[0])
    described = parse_inputs(["x: f32[4, 3] cuda:1", "n: 2"])
    (tensor,) = [guard for guard in judge(log, described) if guard.type == "TENSOR_MATCH"]
    assert "expected device cpu, found cuda" in tensor.checks[0].reason


# -- descriptions ---------------------------------------------------------------------------------


def test_descriptions() -> None:
    expression, tensor = parse_input("x: bf16[4, 17] cuda:1 strides [1, 4] requires_grad")
    assert expression == "L['x']"
    assert tensor == Described("bfloat16", (4, 17), (1, 4), "cuda", 1, True)
    assert parse_input('L["self"].weight: float32[] parameter') == (
        "L['self'].weight",
        Described("float32", (), (), requires_grad=True, parameter=True),
    )
    assert parse_input("n: 5") == ("L['n']", 5)
    assert parse_input("xs: [1, 'a']") == ("L['xs']", [1, "a"])


@pytest.mark.parametrize(
    "text",
    ["", "x", "x:", ":5", "x: f32[4", "x: f33[4]", "x: f32[4] red", "x: f32[4] strides [1, 2]",
     "x: f32[4] cpu cuda", "x: open('f')", "x y: 3", "f(: 3"],
)  # fmt: skip
def test_what_describes_nothing(text: str) -> None:
    with pytest.raises(UsageError):
        parse_input(text)


@given(st.lists(st.integers(0, 5), max_size=4))
def test_contiguous_strides_are_torchs(size: list[int]) -> None:
    assert contiguous(tuple(size)) == torch.empty(size).stride()


# -- the language of checks -----------------------------------------------------------------------

_NUMBERS = st.integers(-20, 20).map(str) | st.sampled_from(["L['n']", "L['x'].size()[0]", "2.5"])


def _combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(
        ["+", "-", "*", "//", "%", "/", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
    )
    pairs = st.tuples(parts, signs, parts).map(lambda p: f"({p[0]} {p[1]} {p[2]})")
    functions = st.sampled_from(["max", "min"])
    calls = st.tuples(functions, parts, parts).map(lambda p: f"{p[0]}({p[1]}, {p[2]})")
    singles = st.tuples(st.sampled_from(["not", "-", "abs"]), parts)
    choices = st.tuples(parts, parts, parts).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})")
    return pairs | calls | singles.map(lambda p: f"({p[0]} ({p[1]}))") | choices


@given(st.recursive(_NUMBERS, _combined, max_leaves=12))
def test_a_check_comes_to_what_python_makes_of_it(code: str) -> None:
    inputs = {"L['n']": 7, "L['x']": Described("float32", (6, 2), (2, 1))}
    known = {"L": {"n": 7, "x": torch.empty(6, 2)}}
    try:
        expected = eval(code, {"__builtins__": {"max": max, "min": min, "abs": abs}}, known)
    except ArithmeticError:
        with pytest.raises(UnsupportedError):
            value_of(parse(code), inputs)
        return
    found = value_of(parse(code), inputs)
    # `and` and `or` give a truth value here, and in guards that is all that is asked of them.
    assert bool(found) == bool(expected) or isinstance(found, bool)
    if "and" not in code and "or" not in code:
        assert found == expected


def test_one_side_may_decide_alone() -> None:
    inputs = parse_inputs(["n: 3"])
    assert value_of(parse("L['m'] > 2 and L['n'] == 4"), inputs) is False
    assert value_of(parse("L['m'] > 2 or L['n'] == 3"), inputs) is True
    with pytest.raises(UnsupportedError, match=r"L\['m'\] is not described"):
        value_of(parse("L['m'] > 2 and L['n'] == 3"), inputs)


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('true')", "open('/etc/passwd')", "L['x'].__class__",
        "(lambda: 1)()",
        "[a for a in (1,)]", "9**9**9**9", "'a' * 10**9", "G['os'].getcwd()", "print(1)",
        "max(*L['n'])", "f'{1}'", "1 if", "(" * 500, "not " * 5000 + "1", "L['x']" + ".a" * 5000,
        "getattr(L['x'], 'data')", "type(L['n'])", "L.__class__", "math.__loader__",
        "max.__self__.eval('1')", "0" * 200_000, "1 << 10**9", "{}.x", "(yield)", "x := 1",
        "~L['n']",
    ],
)  # fmt: skip
def test_nothing_else_is_in_the_language(code: str) -> None:
    inputs = parse_inputs(["x: f32[4]", "n: 5"])
    with pytest.raises(UnsupportedError):
        value_of(parse(code), inputs)
