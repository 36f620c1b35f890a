"""Signatures: the same bug matches however it travelled, another bug does not."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.test_messages import COMPILER, LOWERING, VERBOSE
from torchreel.errors import DamagedStore
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json
from torchreel.store.failures.normalised_messages import normalise_message
from torchreel.store.failures.signature import (
    Signature,
    crash_signature,
    exception_chain,
    from_exception,
    hang_signature,
    signal_name,
    wrong_result_signature,
)

WORDS = st.text(max_size=8)
SIGNATURES = st.builds(
    Signature,
    failure_class=st.sampled_from(["exception", "wrong_result", "crash", "hang"]),
    stage=st.sampled_from(["lowering", "joint"]),
    partition=st.sampled_from(["", "forward"]),
    exception_types=st.lists(WORDS, max_size=3).map(tuple),
    frames=st.lists(WORDS, max_size=3).map(tuple),
    message=WORDS,
    signal=st.none() | st.sampled_from(["SIGSEGV", "SIGABRT"]),
    output=st.none() | st.integers(0, 5),
    magnitude=st.none() | st.integers(-9, 9),
)


@given(SIGNATURES)
def test_json_and_back(signature: Signature) -> None:
    assert Signature.from_json(parse_json(canonical_json(signature.to_json()))) == signature


@given(SIGNATURES, SIGNATURES)
def test_matching_is_having_the_same_digest(one: Signature, two: Signature) -> None:
    assert one.matches(two) == (one.digest == two.digest)
    assert one.matches(one)


BASE = Signature(
    "exception", "lowering", "forward", ("LoweringException", "AssertionError"), ("m:f", "m:g"), "x"
)
CRASH = crash_signature("lowering", "forward", "SIGSEGV")


def changed(signature: Signature, **fields: Json) -> Signature:
    return Signature.from_json({**signature.to_json(), **fields})


@pytest.mark.parametrize(
    ("signature", "fields", "same"),
    [
        (BASE, {"partition": "inference"}, True),
        (BASE, {"frames": ["m:f", "m:other"]}, True),
        (BASE, {"frames": ["m:other", "m:g"]}, False),
        (BASE, {"frames": []}, False),
        (BASE, {"stage": "codegen"}, False),
        (BASE, {"message": "y"}, False),
        (BASE, {"exception_types": ["LoweringException"]}, False),
        (BASE, {"failure_class": "crash"}, False),
        (CRASH, {"signal": "SIGABRT"}, False),
        (CRASH, {"stage": "joint"}, False),
        (CRASH, {"partition": ""}, True),
        (hang_signature("joint"), {"partition": "x"}, True),
        (hang_signature("joint"), {"stage": "lowering"}, False),
        (wrong_result_signature("values", 3, -2), {"output": 0, "magnitude": 1}, True),
        (wrong_result_signature("values", 3, -2), {"message": "nan"}, False),
    ],
)
def test_which_fields_decide(signature: Signature, fields: dict[str, Json], same: bool) -> None:
    assert signature.matches(changed(signature, **fields)) is same


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"failure_class": "bug", "stage": "x"},
        {"failure_class": "crash"},
        {"failure_class": "crash", "stage": 3},
        {"failure_class": "crash", "stage": "x", "frames": "abc"},
        {"failure_class": "crash", "stage": "x", "frames": [1]},
        {"failure_class": "crash", "stage": "x", "output": "1"},
        {"failure_class": "crash", "stage": "x", "magnitude": True},
        {"failure_class": ["crash"], "stage": "x"},
    ],
)
def test_what_is_no_signature(value: Json) -> None:
    with pytest.raises(DamagedStore, match="signature"):
        Signature.from_json(value)


@pytest.mark.parametrize(
    ("value", "name"),
    [(11, "SIGSEGV"), (-11, "SIGSEGV"), ("11", "SIGSEGV"), ("SIGBUS", "SIGBUS"), (99, "signal 99")],
)
def test_signals_have_names(value: str | int, name: str) -> None:
    assert signal_name(value) == name
    assert crash_signature("run", "", value).signal == name


# Exceptions as torch makes them; the real ones are at the end of this file.


class ShortenTraceback(RuntimeError):
    pass


class BackendCompilerFailed(ShortenTraceback):
    def __init__(self, inner: BaseException) -> None:
        name = type(inner).__name__
        super().__init__(f"backend='inductor' raised:\n{name}: {inner}\n{VERBOSE}")
        self.inner_exception = inner


class InductorError(BackendCompilerFailed):
    pass


class LoweringException(RuntimeError):
    pass


class CppCompileError(RuntimeError):
    pass


for kind in (BackendCompilerFailed, InductorError, LoweringException, CppCompileError):
    kind.__module__ = "torch._inductor.exc"


def raised(make: Callable[[], None]) -> BaseException:
    try:
        make()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def as_torch(function: FunctionType) -> FunctionType:
    """The same function, as if a module of torch had it."""
    module = {**globals(), "__name__": "torch._inductor.graph"}
    return FunctionType(function.__code__, module, function.__name__, None, function.__closure__)


def lowering_fails(wrapper: type[BackendCompilerFailed] | None = None) -> BaseException:
    def lower() -> None:
        try:
            raise AssertionError
        except AssertionError:
            raise LoweringException(LOWERING) from None

    inner = raised(as_torch(lower))
    if wrapper is None:
        return inner

    def wrap() -> None:
        raise wrapper(inner).with_traceback(inner.__traceback__) from None

    return raised(wrap)


@pytest.mark.parametrize("wrapper", [None, BackendCompilerFailed, InductorError])
def test_wrappers_do_not_count(wrapper: type[BackendCompilerFailed] | None) -> None:
    signature = from_exception(lowering_fails(wrapper), "lowering", "forward")
    assert signature.exception_types == ("LoweringException", "AssertionError")
    assert signature.message == "AssertionError:\ntarget: aten.scatter.src"
    assert signature.matches(from_exception(lowering_fails(), "lowering", "inference"))


def test_a_wrapper_with_nothing_in_it_counts() -> None:
    class Odd(Exception):
        pass

    Odd.__name__ = "InductorError"
    assert from_exception(Odd("x 3"), "codegen").exception_types == ("InductorError",)


def test_what_the_program_was_handling_is_no_cause() -> None:
    def fail() -> None:
        try:
            raise ImportError("no fast path")
        except ImportError:
            raise ValueError("the bug")  # noqa: B904

    assert from_exception(raised(fail), "joint").exception_types == ("ValueError",)


def test_an_explicit_cause_is_one() -> None:
    def fail() -> None:
        try:
            raise KeyError("s3")
        except KeyError as error:
            raise ValueError("the bug") from error

    signature = from_exception(raised(fail), "joint")
    assert signature.exception_types == ("ValueError", "KeyError")


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert list(exception_chain(one)) == [one, two]


@pytest.mark.parametrize("in_worker", [False, True])
def test_a_compiler_error_is_its_first_error_line(in_worker: bool) -> None:
    """A compile worker sends only the text of the exception back."""
    error = RuntimeError(f"SubprocException:\nTraceback:\n{COMPILER}")
    signature = from_exception(error if in_worker else CppCompileError(COMPILER), "codegen")
    assert signature == Signature(
        "exception",
        "codegen",
        exception_types=("CppCompileError",),
        message="no match for 'operator|' ('VecMask<float, N>')",
    )


FRAMES = """
def wrapped(deeper):
    return deeper()
def lower_{number}(deeper):
    return wrapped(deeper)
"""


def in_module(name: str, deeper: Callable[[], object]) -> Callable[[], object]:
    """A function of a module of that name, which calls `deeper` through a decorator's wrapper."""
    namespace: dict[str, object] = {"__name__": name}
    number = name.rpartition(".")[2]
    exec(FRAMES.format(number=number), namespace)
    function: Callable[[Callable[[], object]], object] = namespace[f"lower_{number}"]  # type: ignore[assignment]
    return lambda: function(deeper)


def divide() -> float:
    return 1 / 0


def test_frames_are_those_of_torch_innermost_first() -> None:
    call: Callable[[], object] = divide
    for name in ["json.a", "torch.b", "mine.c", "torch.d", "torch.e", "torchvision.f", "torch.g"]:
        call = in_module(name, call)
    signature = from_exception(raised(lambda: call() and None), "lowering")
    assert signature.frames == ("torch.b:lower_b", "torch.d:lower_d", "torch.e:lower_e")


@pytest.mark.parametrize("callers", range(4))
def test_a_full_stack_is_the_same_wherever_it_ends(callers: int) -> None:
    known: dict[str, Callable[[], object]] = {}
    known["one"] = in_module("torch.one.a", lambda: known["two"]())
    known["two"] = in_module("torch.two.b", lambda: known["one"]())
    call = known["one"]
    for number in range(callers):
        call = in_module(f"torch.caller{number}.c", call)
    signature = from_exception(raised(lambda: call() and None), "joint")
    assert signature.frames == ("torch.one.a:lower_a", "torch.two.b:lower_b")
    assert signature.message == "maximum recursion depth exceeded"


def test_generated_code_has_no_functions_worth_naming() -> None:
    call = in_module("torch._inductor.runtime.compile_tasks." + "c" + "a2" * 25, divide)
    signature = from_exception(raised(lambda: call() and None), "run")
    assert set(signature.frames) == {"torch._inductor.runtime.compile_tasks:<generated>"}


def test_code_without_torch_has_no_frames() -> None:
    assert from_exception(raised(lambda: divide() and None), "dynamo").frames == ()


REAL = """
import sys, torch
from torch._inductor.compile_fx import compile_fx
from torchreel.store.failures.signature import from_exception

# pytorch/pytorch#188213: Inductor can't lower a scatter into a tensor without elements
pool = torch.nn.AdaptiveMaxPool1d((0,))

def fn(x):
    empty = pool(x)
    return torch.scatter(empty, -1, empty, empty)

seen = []
def direct(graph, inputs):
    try:
        return compile_fx(graph, inputs)
    except Exception as error:
        seen.append(from_exception(error, "lowering", "inference"))
        raise

for backend, rows in [("inductor", 4), (direct, 7)]:
    torch._dynamo.reset()
    try:
        torch.compile(fn, backend=backend, dynamic=False)(torch.rand(rows, 8))
    except Exception as error:
        seen.append(from_exception(error, "lowering", "inference"))
print(len(seen), len(set(seen)), seen[0].exception_types, seen[0].frames[0], repr(seen[0].message))
"""


@pytest.mark.slow
def test_a_real_failure_is_the_same_however_it_travels() -> None:
    """Seen outside of Dynamo, inside of the backend, and outside of a backend of one's own."""
    result = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True)
    assert result.stdout.splitlines() == [
        "3 1 ('LoweringException', 'AssertionError') torch._inductor.lowering:scatter_reduce_ "
        "'AssertionError:\\ntarget: aten.scatter.src'"
    ], result.stderr


def _compile_error(message: str) -> Signature:
    return Signature("exception", "codegen", "", ("CppCompileError",), (), message)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("'acc0_vec' was not declared", "'acc1_vec' was not declared", True),
        ("no member in 'tmp_acc12_arr'", "no member in 'tmp_acc3_arr'", True),
        ("cannot convert 'int64_t'", "cannot convert 'int32_t'", False),
        ("cannot convert 'uint8_t'", "cannot convert 'uint16_t'", False),
        ("'acc0_vec' was not declared", "'acc0_arr' was not declared", False),
    ],
)
def test_numbers_in_names_of_generated_code(one: str, other: str, same: bool) -> None:
    """Inductor numbers its accumulators by the order of the graph, types have theirs for good."""
    assert _compile_error(one).matches(_compile_error(other)) == same


def test_such_numbers_count_in_a_message_of_torch() -> None:
    one, other = changed(BASE, message="max_pool2d"), changed(BASE, message="max_pool3d")
    assert not one.matches(other)


def test_an_exception_that_wraps_itself_counts_once() -> None:
    once = changed(BASE, exception_types=["TypeError", "ValueError"])
    twice = changed(BASE, exception_types=["TypeError", "TypeError", "ValueError"])
    around = changed(BASE, exception_types=["TypeError", "ValueError", "TypeError"])
    assert once.matches(twice)
    assert not once.matches(around)


def test_a_signature_is_the_same_on_every_way_out_of_torch() -> None:
    """`torch._dynamo.eval_frame` raises an exception again, `from None`, which a probe saw."""

    def replace_it() -> None:
        try:
            raise AssertionError
        except AssertionError:
            raise LoweringException(LOWERING)  # noqa: B904

    seen = raised(as_torch(replace_it))
    first = from_exception(seen, "dynamo")

    def leave() -> None:
        raise seen from None

    assert from_exception(raised(leave), "dynamo") == first
    assert first.exception_types == ("LoweringException", "AssertionError")


def test_what_a_program_was_handling_is_no_part_of_a_failure() -> None:
    def compile_in_a_handler() -> None:
        try:
            raise KeyError
        except KeyError:
            raise LoweringException(LOWERING) from None

    seen = from_exception(raised(compile_in_a_handler), "dynamo")
    assert seen.exception_types == ("LoweringException",)


def test_an_input_is_told_by_its_number_and_not_by_its_name() -> None:
    text = "Input {} ({}) is a view of input {} ({}), with (3 rows)"
    names = [("a", "L['b'][0].c"), ("args[0]", "args[1]"), ("self.x", 'G["y"]')]
    found = {
        normalise_message(text.format(n, one, n + 1, two)) for n, (one, two) in enumerate(names)
    }
    assert found == {"Input N is a view of input N, with (N rows)"}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"message": "no valid choices\ntarget: aten.mm.default"}, "target: aten.mm.default"),
        ({"frames": ("torch.a:h", "torch.a:g")}, "in torch.a:h"),
        ({"message": "another"}, ""),
        ({"exception_types": ("KeyError",)}, ""),
        ({}, ""),
    ],
)
def test_what_tells_a_failure_from_one_of_the_same_first_line(
    fields: dict[str, Any], told: str
) -> None:
    message = "no valid choices\ntarget: aten.addmm.default"
    other = Signature("exception", "lowering", "", ("ValueError",), ("torch.a:g",), message)
    assert replace(other, **fields).apart_from(other) == told
