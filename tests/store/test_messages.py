"""Messages: numbering, sizes, places and torch's own frame are no part of one; the rest is."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torchreel.store.failures.normalised_messages import (
    is_compiler_output,
    normalise_message,
    strip_hashes,
)

# Parts of which real messages are made, with holes for what changes from graph to graph.
TEMPLATES = [
    "expected size {0}=={1}, stride {0}==1 at dim={2}",
    "AssertionError: buf{0} is not in name_to_buf",
    "KeyError: 'arg{0}_1'",
    "Could not guard on data-dependent expression Eq(u{0}, {1}) (unhinted: Eq(u{0}, {1}))",
    "s{0}*s{1} does not divide {2}",
    "add_{0} has no users, primals_{1} has one",
    "The size of tensor a ({0}) must match the size of tensor b ({1}) at non-singleton dimension 3",
    "invalid address 0x{0}f",
    "in /tmp/torchinductor_me/{0}/kernel{1}.cpp:{2}:14",
    "failed to run call_function(*(FakeTensor(..., size=({0}, {1})), -{2}), **{{}})",
    "size=[{0}, {1}, {2}] is not contiguous",
]
NUMBERS = st.tuples(*[st.integers(0, 10**6)] * 3)

FRAGMENTS = st.sampled_from(
    [t.format(3, 14, 15) for t in TEMPLATES]
    + ["\n", " ", "  target: aten.add", "backend='x' raised:\n", "LoweringException: ", "N", "NAME"]
    + [
        "[1, 2",
        ", ",
        "from user code:\n",
        "Traceback (most recent call last):\n",
        "at 1:2:\n  ^\n",
        "L['x'].y",
        "error: ",
        "C++ compile error",
        "\nOutput:\n",
    ]
)
TEXTS = st.text() | st.lists(FRAGMENTS | st.text(max_size=5), max_size=12).map("".join)


@given(TEXTS)
@example("1,1,1,(1,)")
@example("s1s1_1 x1x1")
@example("LoweringException: LoweringException: x")
@example("C++ compile error\nOutput:\na: error: C++ compile error\nOutput:")
def test_applying_it_twice_adds_nothing(text: str) -> None:
    once = normalise_message(text)
    assert normalise_message(once) == once


@given(st.sampled_from(TEMPLATES), NUMBERS, NUMBERS)
def test_numbering_and_sizes_do_not_count(
    template: str, one: tuple[int, ...], two: tuple[int, ...]
) -> None:
    assert normalise_message(template.format(*one)) == normalise_message(template.format(*two))


@given(st.lists(st.integers(), min_size=2), st.lists(st.integers(), min_size=2))
def test_nor_does_the_length_of_a_list(one: list[int], two: list[int]) -> None:
    assert normalise_message(f"size={one}") == normalise_message(f"size={two}")


def test_the_templates_stay_apart() -> None:
    normalised = {normalise_message(template.format(3, 14, 15)) for template in TEMPLATES}
    assert len(normalised) == len(TEMPLATES)


@pytest.mark.parametrize(
    "text",
    [
        "cond_fn might be aliasing the input or the output!",
        "expected float32 but got bfloat16",
        "max_pool2d is not supported",
        "target: aten._unique2.default",
        "Unsupported: torch.ops.aten.conv3d",
        "torch._dynamo.exc.Unsupported",
        "got a list, a tuple and/or a dict",
        "operand must be f32 but got i64",
        "operand must be i8 but got i1, not vector<i8> of element type u8",
        "lift_tracked_freevar_to_input should not be called on root SubgraphTracer",
    ],
)
def test_what_tells_bugs_apart_stays(text: str) -> None:
    assert normalise_message(text) == text


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("expected size 1==5, stride 1==1", "expected size N==N, stride N==N"),
        ("size [4, 1, 0] and (8,)", "size [N] and (N)"),
        ("buf12 reads arg0_1 and s77 + u3", "NAME reads NAME and N"),
        ("guard on L['self'].lins[0].weight", "guard on SOURCE"),
        ("open '/tmp/x/a.py', line 3", "open 'PATH.py', line N"),
        ("no file /home/me/data/x", "no file PATH"),
        ("no '/home/my user/x.py:12' here", "no 'PATH.py' here"),
        ("no '/home/my user/x.d/some data' here", "no 'PATH' here"),
        ('File "./my work/x.py", line 3, in f', 'File "PATH.py", line N, in f'),
        ("'a' / 'b' is '/' or '/c' for can't", "'a' / 'b' is '/' or '/c' for can't"),
        ("object at 0x7f00deadbeef>", "object at ADDRESS>"),
        ("kernel " + "c" + "a2" * 25, "kernel HASH"),
        ("While executing %add : [n]", ""),
        ("l_self_modules_lin_parameters_weight_ is", "NAME is"),
        ("ratio 1e-5 of 2.50", "ratio N of N"),
        ("s0//2", "NAME//N"),
        ("name '__subclass_Tensor_94784665072528_c0' is not", "name 'NAME' is not"),
        ("x_123456789 of max_pool2d_12345", "NAME of NAME"),
        (
            "output while_loop(Any cond_fn, Any body_fn, Tensor(a2!) additional_input0) -> ().",
            "output while_loop(SCHEMA).",
        ),
        (
            "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor has",
            "aten::add.Tensor(SCHEMA) has",
        ),
        ("ns::op(Tensor(a!) x, int[] size, Tensor? y=None) -> (Tensor, Tensor)", "ns::op(SCHEMA)"),
        ("f(Any of these) and no arrow", "f(Any of these) and no arrow"),
        ("index (i1, i8) of Eq(u8, u16), f32_1", "index (N) of Eq(N), NAME"),
    ],
)
def test_examples(text: str, normalised: str) -> None:
    assert normalise_message(text) == normalised


LOWERING = """\
AssertionError: 
  target: aten.scatter.src
  args[0]: TensorBox(
    View(
      ComputedBuffer(name='buf0', layout=FixedLayout('cpu', torch.float32, size=[4, 1, 0])),
    )
  )
  args[1]: -1"""  # noqa: W291

VERBOSE = """
Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace (please do this especially if you're \
reporting a bug to PyTorch). For even more developer context, set TORCH_LOGS="+dynamo"
"""


@pytest.mark.parametrize(
    "text",
    [
        LOWERING,
        f"LoweringException: {LOWERING}",
        f"LoweringException: {LOWERING}\n{VERBOSE}",
        f"backend='inductor' raised:\nLoweringException: {LOWERING}\n{VERBOSE}",
        LOWERING.replace("buf0", "buf17").replace("[4, 1, 0]", "[2, 2]"),
    ],
)
def test_a_lowering_keeps_its_reason_and_its_target(text: str) -> None:
    assert normalise_message(text) == "AssertionError:\ntarget: aten.scatter.src"


EXECUTING = """\
cond_fn might be aliasing the input or the output!

While executing %while_loop : [num_users=2] = call_function[target=while_loop](args = (%child,))
Original traceback:
  File "model.py", line 21, in fn
    return while_loop(cond, body, (torch.tensor(0), x))

Use tlparse to see full graph. (https://github.com/pytorch/tlparse)
"""


@pytest.mark.parametrize(
    "text",
    [
        EXECUTING,
        f"backend='inductor' raised:\nRuntimeError: {EXECUTING}{VERBOSE}",
        f"backend='mine' raised:\nRuntimeError: {EXECUTING}{VERBOSE}",
        "cond_fn might be aliasing the input or the output!\n\nfrom user code:\n   File 'a.py'",
    ],
)
def test_the_frame_that_torch_puts_around_a_message(text: str) -> None:
    assert normalise_message(text) == "cond_fn might be aliasing the input or the output!"


COMPILER = """\
C++ compile error

Command:
g++ /tmp/me/zb/c2.main.cpp -D NDEBUG -o error: /tmp/me/zb/c2.main.so

Output:
/tmp/me/zb/c2.main.cpp: In function \u2018void kernel(float*, bool*)\u2019:
/tmp/zb/c2.main.cpp:12:5: warning: unused variable \u2018error\u2019
/tmp/c2.main.cpp:146:57: error: no match for \u2018operator|\u2019 (\u2018VecMask<float, 1>\u2019)
  146 |     tmp_acc0_vec = tmp_acc0_vec | tmp19;
/tmp/me/zb/c2.main.cpp:199:57: error: something else
"""


def test_a_compilers_output_is_its_first_error() -> None:
    expected = "no match for 'operator|' ('VecMask<float, N>')"
    assert normalise_message(COMPILER) == expected
    assert normalise_message(f"CppCompileError: {COMPILER}") == expected
    assert normalise_message(re.sub(r"\d+", "7", COMPILER)) == expected
    assert normalise_message(COMPILER.replace("unused variable", "x" * 5000)) == expected


def test_a_compiler_that_was_killed() -> None:
    text = (
        "C++ compile error\n\nOutput:\ng++: fatal error: Killed signal terminated program cc1plus"
    )
    assert normalise_message(text) == "Killed signal terminated program cc1plus"


def test_output_without_an_error_line() -> None:
    assert normalise_message("C++ compile error\n\nOutput:\nsomething odd\n") == "something odd"


def test_what_is_a_compilers_output() -> None:
    assert is_compiler_output(COMPILER)
    assert not is_compiler_output("error: no match")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "part",
    [
        "\n",
        " ",
        "N ",
        "-a",
        "a/",
        "/a/",
        "f2",
        "L['",
        "FakeTensor(",
        "1,",
        "'/",
        "a b/",
        "'/.py:1,",
    ],
)
def test_no_text_makes_it_slow(part: str) -> None:
    """A quadratic rule takes minutes for this; the timeout only ends that."""
    normalise_message(part * 100_000)


def test_a_dump_is_cut() -> None:
    text = "\n".join("word " * 1000 for _ in range(1000))
    assert len(normalise_message(text)) < 3000


def test_a_module_of_generated_code() -> None:
    prefix = "torch._inductor.runtime.compile_tasks"
    assert strip_hashes(f"{prefix}.cvjhzqkx7v4pgq5m7a7qiirswmtzydpj4msprzge62xedhxdwmu3") == prefix
    assert strip_hashes("torch._inductor.lowering") == "torch._inductor.lowering"


def test_an_operator_that_is_named_like_a_symbol_keeps_its_name() -> None:
    text = "no fake kernel of u1::cat1, called as torch.ops.u1.cat1.default with u1 rows of s77"
    assert normalise_message(text) == (
        "no fake kernel of u1::cat1, called as torch.ops.u1.cat1.default with NAME rows of NAME"
    )
    assert normalise_message("buf3.data.T, arg0_1.add.default") == "NAME.data.T, NAME.add.default"


@pytest.mark.parametrize(
    "where",
    ["", " in comparison", " in __instancecheck__", " while calling a Python object",
     " while getting the str of an object", " while decoding a JSON array from a unicode string",
     " while normalizing an exception", " during compilation"],
)  # fmt: skip
def test_where_a_recursion_ended_does_not_count(where: str) -> None:
    text = "RecursionError: maximum recursion depth exceeded"
    assert normalise_message(text + where) == normalise_message(text)


FRAMES = """\
Traceback (most recent call last):
  File "/x/torch/_inductor/compile_worker/subproc_pool.py", line {0}, in do_job
    result = job()
             ^^^^^
"""
WORKER = (
    f"An exception occurred in a subprocess:\n\nName=triton_poi_fused_{{0}}\n{FRAMES}"
    "ValueError: its cause\n\nThe above exception was the direct cause of the following exception:"
    f"\n\n{FRAMES}"
)
KERNEL = """\
at {0}:{1}:
def triton_poi_fused_{2}(in_ptr0, xnumel, XBLOCK : tl.constexpr):

    x{0} = xindex
    tmp{0} = tl.load(in_ptr0 + x{0}, xmask)
    ^
{said}"""


@pytest.mark.parametrize("said", ["KeyError: 'no such operand'", "AssertionError: a\nand b"])
@pytest.mark.parametrize("around", ["{}", "SubprocException: {}", "InductorError: E: {}"])
def test_the_text_of_a_compile_worker_is_its_last_exception(around: str, said: str) -> None:
    text = around.format(WORKER.format(7)) + f"{said}\n{VERBOSE}"
    assert normalise_message(text) == said
    assert normalise_message(f"{FRAMES}{said}") == said


@pytest.mark.parametrize("said", ["invalid operands of type fp32 and int32", "a\nand b", ""])
@pytest.mark.parametrize("around", ["", "CompilationError: ", WORKER + "triton.Error: "])
def test_the_text_of_triton_has_no_lines_of_the_kernel(around: str, said: str) -> None:
    one, other = [
        normalise_message(around.format(*numbers) + KERNEL.format(*numbers, said=said))
        for numbers in ((3, 14, 15), (2, 7, 1))
    ]
    assert one == other
    assert one.endswith(said)
    assert "def" not in one
