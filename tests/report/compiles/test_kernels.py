"""Kernels are found in generated code, in time that grows with the code."""

import time

import pytest

from torchreel.report.compiles.kernels import _calls, _sources

CODE = """
cpp_fused_0 = async_compile.cpp_pybinding(['const float*'], r'''
extern "C" void kernel(const float* x)
{
    f(x);
}
''')

triton_1 = async_compile.triton('triton_1', '''
import triton
''', device_str='cuda')

def call(args):
    cpp_fused_0(buf0)
    buf1 = extern_kernels.mm(a, b)
    triton_1.run(buf1, grid=grid)
"""


def test_calls_and_sources_are_found() -> None:
    assert _sources(CODE) == {"cpp_fused_0": (2, 7), "triton_1": (9, 11)}
    names = ["cpp_fused_0", "extern_kernels.mm", "triton_1"]
    assert {name: list(at) for name, at in _calls(CODE, names).items()} == {
        "cpp_fused_0": [14], "extern_kernels.mm": [15], "triton_1": [16],
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "a = async_compile.x(\n" * 100_000, "a = async_compile.x(\n'''\n" * 80_000,
        " " * 2_000_000, " a" + ", " * 1_000_000, " " + "a" * 2_000_000, " a.b" * 500_000,
    ],
)  # fmt: skip
def test_code_of_a_stranger_takes_no_longer(text: str) -> None:
    began = time.process_time()
    _sources(text)
    _calls(text, {"a"})
    assert time.process_time() - began < 5
