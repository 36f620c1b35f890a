"""Pairs of programs that were made to be merged: one function's name, one statement, one message.

What sets the two apart is another line of the function, what it uses of its module, or the
statement that made what it stops at.
"""

from __future__ import annotations

from benchmarks.triage.bugs import Bug

_INPUTS = """
def make_inputs():
    return (torch.randn(SIZE, 6, dtype=DTYPE),)
"""
_VARIANTS = 4


def _pair(
    name: str, text: str, one: tuple[str, ...], other: tuple[str, ...], *, arguments: str
) -> dict[str, Bug]:
    """Return two bugs with one text, in which the words in capitals differ."""
    found = {}
    for which, words in (("one", one), ("other", other)):
        written = text
        for place, word in zip(("WHAT", "CALL"), words, strict=False):
            written = written.replace(place, word)
        found[f"trap_{name}_{which}"] = Bug(
            "", written.strip() + "\n" + _INPUTS, "", dtypes=("float32", "float64"),
            arguments=arguments, variants=_VARIANTS,
        )  # fmt: skip
    return found


_SINE, _EXPONENT = "x.sin() + 1", "torch.exp(x) - 1"
_FULL = "fullgraph=True"

TRAP_BUGS = {
    **_pair(
        "line",
        """
def lower(gm, inputs):
    for node in gm.graph.nodes:
        found = str(node.target)
        if "WHAT" in found:
            raise NotImplementedError("this operation is not supported")
    return gm

def fn(x):
    return CALL
""",
        ("sin", _SINE),
        ("exp", _EXPONENT),
        arguments="backend=lower",
    ),
    **_pair(
        "table",
        """
REFUSED = ["WHAT", "conv"]

def is_refused(node):
    return any(word in str(node.target) for word in REFUSED)

def lower(gm, inputs):
    for node in gm.graph.nodes:
        if is_refused(node):
            raise NotImplementedError("this operation is not supported")
    return gm

def fn(x):
    return CALL
""",
        ("sin", _SINE),
        ("exp", _EXPONENT),
        arguments="backend=lower",
    ),
    **_pair(
        "method",
        """
class Base:
    refused = "WHAT"

class Lowering(Base):
    def __call__(self, gm, inputs):
        return [self.lowered(node) for node in gm.graph.nodes]

    def lowered(self, node):
        if self.refused in str(node.target):
            raise ValueError("no kernel")

def fn(x):
    return CALL
""",
        ("sin", _SINE),
        ("exp", _EXPONENT),
        arguments="backend=Lowering()",
    ),
    **_pair(
        "pass",
        """
import torch._inductor.config

def fuse(graph):
    pairs = [node for node in graph.nodes if "WHAT" in str(node.target)]
    return pairs[0].meta["fused"]

torch._inductor.config.post_grad_custom_post_pass = fuse

def fn(x):
    return CALL
""",
        ("atan2", "torch.atan2(x, x + 1)"),
        ("hypot", "torch.hypot(x, x + 1)"),
        arguments="",
    ),
    **_pair(
        "fake",
        """
@torch.library.custom_op("bench::part", mutates_args=())
def part(x: torch.Tensor) -> torch.Tensor:
    return WHAT.clone()

@part.register_fake
def _(x):
    wanted = WHAT
    assert wanted.shape == (1,), "a shape of another size"
    return wanted

def fn(x):
    return part(x * 2)
""",
        ("x[0]",),
        ("x.sum(-1)",),
        arguments="",
    ),
    **_pair(
        "truth",
        """
def fn(x):
    found = WHAT
    if found:
        return x + 1
    return x
""",
        ("x.isposinf().any()",),
        ("(x > 3).all()",),
        arguments=_FULL,
    ),
    **_pair(
        "steps",
        """
def fn(x):
    whole = WHAT
    found = whole
    while found:
        x = x + 1
    return x
""",
        ("x.isinf().all()",),
        ("x.norm() > 2",),
        arguments=_FULL,
    ),
    **_pair(
        "argument",
        """
def check(bad):
    if bad:
        raise ValueError("not a number")

def fn(x):
    check(WHAT)
    return x
""",
        ("torch.isnan(x).any()",),
        ("(x < 0).all()",),
        arguments=_FULL,
    ),
    **_pair(
        "lines",
        """
def fn(x):
    if (
        WHAT
    ):
        return x + 1
    return x
""",
        ("x.argmax() > 1",),
        ("x.count_nonzero() > 1",),
        arguments=_FULL,
    ),
}
