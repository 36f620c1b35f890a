"""Small programs, one for each kind of frame that Dynamo meets: recorded in one process.

`MODULE` is a file that the program imports, `MAIN` the program itself; each function is compiled
under its own name, by which a test finds it again.
"""

MODULE = """
import contextlib, dataclasses
import torch
import torch.nn.functional as F

SCALE = 3.0
TABLE = {"bias": torch.ones(3), "factor": 2}

def helper(y):
    return y.sin() * SCALE

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("bias", torch.zeros(4))

    def forward(self, x, *rest, scale=2, **more):
        return helper(self.inner(x) * scale + rest[0] + more["z"] + self.bias)

class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
    def __init__(self, inner):
        self.inner = inner
    def __repr__(self):
        return "Wrapped"
    def __tensor_flatten__(self):
        return ["inner"], {"unit": "m"}
    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        assert context == {"unit": "m"}
        return Wrapped(inner["inner"])
    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        plain = torch.utils._pytree.tree_map_only(Wrapped, lambda w: w.inner, (args, kwargs or {}))
        return Wrapped(op(*plain[0], **plain[1]))

def subclass(x):
    return x.sin() * 2

def operators(x):
    return ADD(aten.sin.default(x), x)

aten, ADD = torch.ops.aten, torch.ops.aten.add.Tensor

def item(x, n):
    return x * n.item()

def closure(n):
    k = torch.ones(3)
    def closed(x, flag):
        def inner(y):
            return y + x * n + k
        return inner(x.sin()) if flag else x
    return closed

def global_values(x):
    TABLE["count"] = TABLE.get("count", 0) + 1
    return helper(x) + TABLE["bias"] * TABLE["factor"]

def defaults(x, y=2, *, z=3.0):
    return x * y + z

def generator(x):
    def steps(n):
        for i in range(n):
            yield x * i
    return sum(steps(3))

@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: int

def dataclass(p):
    return Pair(p.a.sin(), p.b + 1).a * p.b

def breaks(x, y):
    z = x.sin()
    torch._dynamo.graph_break()
    w = z.cos() + y * 3
    torch._dynamo.graph_break()
    return w.tan() + z

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x.cos()

def autograd_function(x):
    return Double.apply(x).sin()

@contextlib.contextmanager
def doubling():
    yield 2

def contexts(x):
    with torch.no_grad():
        y = x.sin()
    with torch.autocast("cpu", torch.bfloat16), doubling() as n:
        z = x @ x * n
    return y + z

def transforms(x):
    total = torch.func.grad(lambda v: v.sin().sum())(x).sum()
    return torch.vmap(lambda v: v.sin().sum())(x) + total

def higher_order(x):
    return torch.cond(x.sum() > 0, lambda v: v.sin() + SCALE, lambda v: v.cos(), (x,))

def library(x):
    return F.layer_norm(x, (x.shape[-1],)) + F.multi_margin_loss(x, torch.zeros(4).long())

def sizes(x):
    return x.reshape(-1) * rows(x)

scope = {"ROWS": 0}  # of no module: Dynamo keeps it under a name that counts what it has traced
exec("def rows(x): return x.shape[ROWS]", scope)
rows = scope["rows"]

def views(a, b, c):
    a.add_(1)
    return a[1:] + b[1:], c.relu()

def floats(x, eps):
    return F.instance_norm(x, eps=eps)

def dispatched(x):
    return x.sin() + 1

def in_operator(x):
    return x.cos() + 1

@torch.library.custom_op("kinds::operator", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    return torch.compile(in_operator, backend="aot_eager")(x)

class Dispatching(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op is torch.ops.aten.sin.default:
            return torch.compile(dispatched, backend="aot_eager")(*args)
        return op(*args, **(kwargs or {}))

def fails(x):
    return torch.ops.aten.no_such_operator(x)
"""

MAIN = """
import torch, kinds

SHIFT = torch.ones(3)

class Own:
    def __init__(self):
        self.names = ["a", "b"]

    def shifted(self, x):
        return x + SHIFT * len(self.names)

def run(fn, *args, **kwargs):
    return torch.compile(fn, backend="aot_eager")(*args, **kwargs)

run(kinds.Net(), torch.ones(2, 4), torch.ones(4), scale=3, z=torch.zeros(4)).sum().backward()
run(kinds.closure(4), torch.ones(3), True)
run(kinds.global_values, torch.ones(3))
run(kinds.subclass, kinds.Wrapped(torch.ones(3)))
run(kinds.operators, torch.ones(3))
with torch._dynamo.config.patch(capture_scalar_outputs=True):
    run(kinds.item, torch.ones(3), torch.tensor(7))
exported = torch.export.export(torch.nn.Linear(4, 4), (torch.ones(2, 4),)).module()
run(exported, torch.ones(2, 4))
run(kinds.defaults, torch.ones(3), z=4.0)
run(kinds.generator, torch.ones(3))
run(kinds.dataclass, kinds.Pair(torch.ones(3), 3))
run(kinds.breaks, torch.ones(3), torch.ones(3))
run(kinds.autograd_function, torch.ones(3, requires_grad=True)).sum().backward()
run(kinds.contexts, torch.ones(4, 4))
run(kinds.transforms, torch.ones(4, 4))
run(kinds.higher_order, torch.ones(4, 4))
run(kinds.library, torch.ones(4, 4))
base = torch.zeros(16)
run(kinds.views, base[2:6], base[4:8], torch.ones(6, requires_grad=True)[::2] * 1)
run(Own().shifted, torch.ones(3))

sized = torch.compile(kinds.sizes, backend="aot_eager")
for size, dtype in ((3, None), (5, None), (7, None), (7, torch.float64)):
    sized(torch.ones(size, 2, dtype=dtype))

kinds.operator(torch.ones(3))
with kinds.Dispatching():
    torch.ones(3).sin()
for _ in range(2):  # what torch has specialised is forgotten in a reset
    torch._dynamo.reset()
    torch.compile(kinds.floats, backend="aot_eager", dynamic=True)(torch.ones(2, 3, 4), 1e-4)

torch.compile(kinds.defaults, backend=lambda gm, inputs: gm.forward)(torch.ones(4))
try:
    torch.compile(kinds.fails, backend="eager", fullgraph=True)(torch.ones(3))
except Exception as error:
    print(type(error).__name__)
"""

KINDS = (
    "forward", "closed", "global_values", "defaults", "generator", "dataclass", "breaks",
    "torch_dynamo_resume_in_breaks", "autograd_function", "contexts", "transforms",
    "higher_order", "library", "sizes", "views", "shifted", "fails", "subclass", "operators",
    "item", "floats", "dispatched", "in_operator",
)  # fmt: skip
