"""What is said of a chain of exceptions in one line: what tells the failure from others."""

import pytest

from torchreel.store.failures.raised import Raised, in_one_line


def raised(name: str, text: str, *frames: str) -> Raised:
    return Raised(name, (name, "Exception"), text, tuple(("torch.module", one) for one in frames))


@pytest.mark.parametrize(
    ("chain", "line"),
    [
        ([raised("IndexError", "out of range\nmore")], "IndexError: out of range"),
        (
            [
                raised("TorchRuntimeError", "RuntimeError when making fake tensor call\n  more"),
                raised("RuntimeError", "a INTERNAL ASSERT FAILED\nmore"),
            ],
            "TorchRuntimeError: RuntimeError when making fake tensor call: "
            "a INTERNAL ASSERT FAILED",
        ),
        (
            [
                raised("InductorError", "LoweringException: AssertionError: \n  target: aten.sum"),
                raised("AssertionError", "", "sum", "make_reduction"),
            ],
            "InductorError: LoweringException: AssertionError of aten.sum in make_reduction",
        ),
        (
            [
                raised("InductorError", "AssertionError: "),
                raised("AssertionError", "", "CppVecKernel.reduction"),
            ],
            "InductorError: AssertionError in CppVecKernel.reduction",
        ),
        ([raised("AssertionError", "", "f")], "AssertionError in f"),
        ([raised("AssertionError", "")], "AssertionError"),
        (
            [raised("RuntimeError", "Expected the same metadata but found\n\npair[0] differ")],
            "RuntimeError: Expected the same metadata but found pair[0] differ",
        ),
        ([raised("ValueError", "x" * 300)], f"ValueError: {'x' * 187}…"),
    ],
)
def test_one_line_says_what_tells_a_failure_from_others(chain: list[Raised], line: str) -> None:
    assert in_one_line(chain) == line
