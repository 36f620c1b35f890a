"""Bugs and limitations that were written down after the rules of the grouping were fixed.

What `tracing_bugs` says of its own is true of these as well.
"""

from __future__ import annotations

from benchmarks.triage.bugs import Bug

_ONE = """
def make_inputs():
    return (torch.randn(SIZE, 6, dtype=DTYPE),)
"""
_FULL = "fullgraph=True"


def _held(
    text: str, expected: str = "", arguments: str = _FULL, inputs: str = _ONE, variants: int = 20
) -> Bug:
    dtypes = ("float32", "float64", "bfloat16")
    body = text.strip() + "\n" + inputs
    return Bug("", body, expected, dtypes=dtypes, arguments=arguments, variants=variants)


HELDOUT_BUGS = {
    "clip_by_norm": _held(
        """
def clip(x, most):
    length = x.norm()
    return x * most / length if length > most else x

def fn(x):
    return clip(x, 3.0)
""",
        "Data-dependent branching",
    ),
    "until_converged": _held(
        """
def fn(x):
    for _ in range(4):
        x = (x + 1 / x) / 2
        if torch.allclose(x, x.round()):
            break
    return x
""",
    ),
    "assert_finite": _held(
        """
def fn(x):
    assert x.isfinite().all(), f"not finite: {x}"
    return x.log()
""",
    ),
    "index_beyond": _held(
        """
layers = [torch.sin, torch.cos]

def fn(x):
    for step in range(3):
        x = layers[step](x)
    return x
""",
        "IndexError",
    ),
    "no_such_dimension": _held(
        """
def fn(x):
    return x.softmax(4)
""",
    ),
    "norm_of_other_size": _held(
        """
def fn(x):
    return F.layer_norm(x, (9,))
""",
    ),
    "linear_of_other_size": _held(
        """
weight = torch.ones(3, 11)

def fn(x):
    return F.linear(x, weight)
""",
        "RuntimeError",
    ),
    "embedding_of_floats": _held(
        """
table = torch.ones(10, 3)

def fn(x):
    return F.embedding(x, table)
""",
    ),
    "seed": _held(
        """
def fn(x):
    torch.manual_seed(0)
    return x + torch.rand_like(x)
""",
    ),
    "graph_break": _held(
        """
def fn(x):
    x = x.tanh()
    torch._dynamo.graph_break()
    return x + 1
""",
    ),
    "to_numpy_text": _held(
        """
def fn(x):
    print("mean", x.mean())
    return x
""",
    ),
    "stack_frame": _held(
        """
import inspect

def fn(x):
    return x + len(inspect.stack())
""",
    ),
    "saving": _held(
        """
def fn(x):
    torch.save(x, "/dev/null")
    return x + 1
""",
    ),
    "backward_inside": _held(
        """
def fn(x):
    leaf = x.detach().requires_grad_()
    (leaf * leaf).sum().backward()
    return leaf.grad
""",
    ),
    "unpacked_wrongly": _held(
        """
def fn(x):
    low, high = x.chunk(3, -1)
    return low + high
""",
    ),
    "wrong_arguments": _held(
        """
def scaled(x, by):
    return x * by

def fn(x):
    return scaled(x, 2, 3)
""",
        "TypeError",
    ),
    "scan_of_other_carry": _held(
        """
from torch._higher_order_ops.scan import scan

def fn(x):
    return scan(lambda carry, item: (carry.sum(), item), x[0], x)
""",
    ),
    "while_of_other_shape": _held(
        """
from torch._higher_order_ops.while_loop import while_loop

def fn(x):
    return while_loop(lambda v: v.sum() < 9, lambda v: (v[0],), (x,))
""",
    ),
    "backend_with_options": _held(
        """
LIMIT = 1

def small_only(gm, inputs):
    size = sum(node.op != "placeholder" for node in gm.graph.nodes)
    if size > LIMIT:
        raise ValueError("this graph is too large")
    return gm

def fn(x):
    return x.sin().cos().tan()
""",
        "too large",
        "backend=small_only",
    ),
    "backend_on_devices": _held(
        """
class Lowering:
    def __call__(self, gm, inputs):
        return self.lowered([node for node in gm.graph.nodes if node.op == "call_function"])

    def lowered(self, nodes):
        raise ValueError("this graph is too large")

def fn(x):
    return torch.add(x, 1)
""",
        "too large",
        "backend=Lowering()",
    ),
    "vmap_of_a_branch": _held(
        """
def fn(x):
    return torch.vmap(lambda row: row if row.sum() > 0 else -row)(x)
""",
    ),
    "cond_with_text": _held(
        """
def fn(x):
    return torch.cond(x.sum() > 0, lambda x: (x, "yes"), lambda x: (x, "no"), (x,))
""",
    ),
}
