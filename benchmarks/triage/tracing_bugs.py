"""Programs that torch 2.13.0 can't trace, or whose extensions fail: what one place reports of many.

Lives here: more bugs and limitations as text, as `programs` has them.  Many of them leave the
compiler at the same place with the same words, which is what a grouping may not be led astray by.
Nothing here is copied from an issue.
"""

from __future__ import annotations

from benchmarks.triage.bugs import Bug

_ONE = """
def make_inputs():
    return (torch.randn(SIZE, 6, dtype=DTYPE),)
"""
_FULL = "fullgraph=True"
_FLOATS = ("float32", "float64", "bfloat16")


def _traced(
    text: str, expected: str, arguments: str = _FULL, inputs: str = _ONE, variants: int = 20
) -> Bug:
    return Bug(
        "", text.strip() + "\n" + inputs, expected, dtypes=_FLOATS, arguments=arguments,
        variants=variants,
    )  # fmt: skip


TRACING_BUGS = {
    "branch_on_sum": _traced(
        """
def fn(x):
    return x + 1 if x.sum() > 0 else x - 1
""",
        "Data-dependent branching",
    ),
    "branch_on_max": _traced(
        """
def fn(x):
    if x.max() < x.numel():
        return x * 2
    return x
""",
        "Data-dependent branching",
    ),
    "loop_on_norm": _traced(
        """
def fn(x):
    while torch.linalg.vector_norm(x) < 100:
        x = x * 2
    return x
""",
        "Data-dependent branching",
    ),
    "all_close": _traced(
        """
def fn(x):
    same = torch.isnan(x).any()
    if same:
        raise ValueError("not a number")
    return x
""",
        "Data-dependent branching",
    ),
    "missing_option": _traced(
        """
options = {"scale": 2}

def fn(x):
    return x * options["shift"]
""",
        "KeyError",
    ),
    "missing_weight": _traced(
        """
weights = {0: 1.5, 1: 2.5}

def fn(x):
    total = x.cos()
    for step in range(3):
        total = total + weights[step]
    return total
""",
        "KeyError",
    ),
    "missing_attribute": _traced(
        """
class Settings:
    scale = 2

settings = Settings()

def fn(x):
    return x + settings.bias
""",
        "AttributeError",
    ),
    "raised_by_program": _traced(
        """
def check(x):
    if x.dim() != 3:
        raise ValueError("three dimensions are needed")

def fn(x):
    check(x)
    return x.sin()
""",
        "ValueError",
    ),
    "list_of_counts": _traced(
        """
def fn(x):
    lengths = x.argmax(-1).tolist()
    return x.split(lengths)[0]
""",
        "<=",
        variants=4,
    ),
    "address": _traced(
        """
def fn(x):
    return x + x.data_ptr() % 2
""",
        "data_ptr",
    ),
    "clock": _traced(
        """
import time

def fn(x):
    return x * time.time()
""",
        "time",
    ),
    "log": _traced(
        """
import logging

logger = logging.getLogger("training")

def fn(x):
    logger.warning("a step")
    return x * 2
""",
        "",
    ),
    "read_a_file": _traced(
        """
def fn(x):
    with open("/dev/null") as file:
        text = file.read()
    return x + len(text)
""",
        "",
    ),
    "product_of_other_sizes": _traced(
        """
def fn(x):
    return x @ x.new_ones(5, 3)
""",
        "RuntimeError",
    ),
    "joined_sizes": _traced(
        """
def fn(x):
    return torch.cat([x, x.new_ones(2, 5)], 0)
""",
        "RuntimeError",
    ),
    "no_such_view": _traced(
        """
def fn(x):
    return x.view(-1, 7 * 97)
""",
        "RuntimeError",
    ),
    "no_fake": _traced(
        """
@torch.library.custom_op("bench::halve", mutates_args=())
def halve(x: torch.Tensor) -> torch.Tensor:
    return x / 2

def fn(x):
    return halve(x.exp())
""",
        "fake",
    ),
    "other_no_fake": _traced(
        """
@torch.library.custom_op("bench::rank_of", mutates_args=())
def rank_of(x: torch.Tensor, best: int) -> torch.Tensor:
    return x.argsort(-1)[..., :best]

def fn(x):
    return rank_of(x, 2) + 1
""",
        "fake",
    ),
    "backend_without_sine": _traced(
        """
def refuse_sine(gm, inputs):
    for node in gm.graph.nodes:
        if "sin" in str(node.target):
            raise NotImplementedError("this operation is not supported")
    return gm

def fn(x):
    return x.sin() + 1
""",
        "not supported",
        "backend=refuse_sine",
    ),
    "backend_without_erf": _traced(
        """
def check_node(node):
    if node.target is torch.erf:
        raise NotImplementedError("this operation is not supported")

def lower(gm, inputs):
    for node in gm.graph.nodes:
        check_node(node)
    return gm.forward

def fn(x):
    return torch.erf(x) + 1
""",
        "not supported",
        "backend=lower",
    ),
    "pass_fails": _traced(
        """
import torch._inductor.config

def fuse(graph):
    pairs = [node.args[1] for node in graph.nodes if "atan2" in str(node.target)]
    return pairs[0].meta["fused"]

torch._inductor.config.post_grad_custom_post_pass = fuse

def fn(x):
    return torch.atan2(x, x + 1)
""",
        "KeyError",
    ),
    "cond_that_mutates": _traced(
        """
def fn(x):
    return torch.cond(x.sum() > 0, lambda x: x.add_(1), lambda x: x - 1, (x,))
""",
        "",
    ),
    "alias_of_input": _traced(
        """
@torch.library.custom_op("bench::same", mutates_args=())
def same(x: torch.Tensor) -> torch.Tensor:
    return x

@same.register_fake
def _(x):
    return x

def fn(x):
    return same(x.exp()) * 2
""",
        "alias",
        variants=4,
    ),
    "twice_differentiated": _traced(
        """
def fn(x):
    return (x.tanh() * x).sum()

def after(result, inputs):
    (found,) = torch.autograd.grad(result, inputs[0], create_graph=True)
    found.sum().backward()
""",
        "double backward",
        "",
        """
def make_inputs():
    return (torch.randn(SIZE, 6, requires_grad=True),)
""",
        4,
    ),
}
