"""Frames whose guards see classes, backends and the order of things, replayed from their bundles.

The programs are in the form of PyTorch's own tests (test_functions, test_higher_order_ops).
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

import pytest

from tests import forks
from torchreel.replay.compare.verdict import Verdict
from torchreel.replay.many import Row, replay_all
from torchreel.replay.replay import replay
from torchreel.store import Store, queries
from torchreel.store.records import Compile

_BEGINNING = """
import abc, dataclasses, enum, functools, sys, typing
import numpy as np
import torch, torch._dynamo.testing
ones = torch.ones
"""

PROGRAMS = {
    "objects of C++, of no name, of slots, and data that is no tensor": """
from torch.nn.attention import SDPBackend, sdpa_kernel
CHOSEN = SDPBackend.MATH
def attended(q, more):
    with sdpa_kernel([CHOSEN, *more], set_priority=True):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
class Missing:
    def __reduce__(self): return "MISSING"
MISSING = Missing()
def given(x, k=MISSING): return x.sin() if k is MISSING else x.cos()
class Holder: pass
def held(x, o): return x + o.k
class Slotted(torch.nn.Module):
    __slots__ = ("q",)
    def __init__(self):
        super().__init__()
        self.q = 4
    def forward(self, x): return x * self.q
def run(function, *args): torch.compile(function, backend="eager")(*args)
def main():
    run(attended, torch.randn(1, 2, 4, 8), [SDPBackend.EFFICIENT_ATTENTION])
    run(given, ones(3))
    holder = Holder()
    holder.data, holder.k = torch.arange(64.0).untyped_storage(), 3
    run(held, ones(3), holder)
    run(Slotted(), ones(3))
""",
    "what Dynamo traces in place of a function, and calls as it is": """
import operator
@torch.compiler.substitute_in_graph(operator.indexOf)
def indexOf(a, b, /):
    for i, item in enumerate(a):
        if item is b or item == b: return i
    raise ValueError
@torch._dynamo.decorators.leaf_function
def leaf(x): return (x.mean(dim=1),)
@leaf.register_fake
def leaf_fake(x): return (x.new_empty(x.shape[0]),)
def main():
    torch.compile(lambda x: x + operator.indexOf([1, 2], 2), backend="eager")(ones(3))
    torch.compile(lambda x: leaf(x)[0] * 2, backend="eager")(torch.ones(3, 4))
""",
    "torch function modes of the program's": """
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode
class Scaled(TorchFunctionMode):
    def __init__(self, by):
        super().__init__()
        self.by = by
    def __torch_function__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        return found * self.by if function is torch.add else found
def added(x): return torch.add(x, 1).sin()
def main():
    with BaseTorchFunctionMode():
        torch.compile(added, backend="eager")(ones(2))
    with BaseTorchFunctionMode(), Scaled(3):
        torch.compile(added, backend="eager")(ones(3))
    with torch.device("cpu"), Scaled(2):
        torch.compile(lambda x: torch.add(x, 2), backend="aot_eager")(ones(3))
""",
    "objects that say themselves how they are pickled": """
import collections, enum, functools, types, threading
LOCK = threading.Lock()
class Registry:
    def __init__(self): self.n = 3
    def __reduce__(self):
        with LOCK: return Registry, ()
class Attributes(dict): __getattr__ = dict.__getitem__
class Lazily(dict):
    def __getattr__(self, name): return self[name]
    def items(self): raise RuntimeError("not now")
class Last(collections.deque):
    def __reduce__(self): raise RuntimeError("not now")
class Groups(collections.defaultdict):
    def __getattr__(self, name): raise KeyError(name)
class Mode(enum.Enum):
    SIN = 1
    COS = 2
    def __reduce_ex__(self, protocol): return Mode, (self.value,)
class Text(str):
    def __getattr__(self, name): raise RuntimeError(name)
    def __str__(self): return "another"
class Number(int):
    def __reduce__(self): raise RuntimeError("not now")
class Members(set):
    def __getattr__(self, name): raise KeyError(name)
    def __iter__(self): raise RuntimeError("not now")
def valued(x, held): return x * held[3] + len(held)
class Settings(types.SimpleNamespace):
    def __getattr__(self, name): raise AttributeError(name)
class Part(functools.partial):
    def __getattr__(self, name): raise AttributeError(name)
class Rights(enum.Flag):
    R = 1
    W = 2
    def __reduce_ex__(self, protocol): raise RuntimeError("not now")
def set_so(x, settings, part, rights):
    x = x * settings.k + part(2)
    return x.sin() if Rights.W in rights else x.cos()
class Remembered:
    def __new__(cls, name): return object.__new__(cls)
    def __init__(self, name): self.name, self.k = name, len(name)
    def __getnewargs__(self): raise RuntimeError("not now")
    def __setstate__(self, state): raise RuntimeError("not now")
class Delegating(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def __getattr__(self, name):
        try: return super().__getattr__(name)
        except AttributeError: return getattr(self.inner, name)
    def forward(self, x): return self.inner(x) * self.k
class Inner(torch.nn.Module):
    k = 4
    def forward(self, x): return x.sin()
def used(x, registry, plain, lazily, last, groups, mode, remembered):
    x = x * registry.n + plain["a"] + lazily.b + len(last) + last[0] + len(groups["k"])
    return x.sin() * remembered.k if mode is Mode.SIN else x.cos()
def main():
    registry = Registry()
    registry.n = 5
    groups = Groups(list)
    groups["k"].append(2)
    with LOCK:
        torch.compile(used, backend="eager")(
            ones(3), registry, Attributes(a=1), Lazily(b=2), Last([1, 2], 7), groups, Mode.SIN,
            Remembered("name"))
        torch.compile(Delegating(Inner()), backend="eager")(ones(3))
        torch.compile(valued, backend="eager")(ones(3), [Text("four"), Number(5), Members([3]), 3])
        torch.compile(set_so, backend="eager")(
            ones(3), Settings(k=2), Part(max, 1), Rights.R | Rights.W)
""",
    "the order of sets whose table is larger than they need": """
LEFT = set(range(0, 300, 3))
for number in list(LEFT):
    if number not in (3, 33, 66, 129): LEFT.discard(number)
def listed(x):
    for number in LEFT: x = x * number + 1
    return x
def main():
    assert list(LEFT) != list({*list(LEFT)})
    torch.compile(listed, backend="eager")(ones(3))
""",
    "classes that want arguments, and code that only registries lead to": """
import torch.utils._pytree as pytree
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda parts, _: Pair(*parts))
class Base:
    known = {}
    def __init_subclass__(cls, key, **more):
        super().__init_subclass__(**more)
        Base.known[key] = cls
class Sub(Base, key="s"):
    def go(self, x): return x + len(Base.known)
class Meta(type):
    def __new__(mcs, name, bases, items, *, unit): return super().__new__(mcs, name, bases, items)
    def __init__(cls, name, bases, members, *, unit): cls.unit = unit
class Metre(metaclass=Meta, unit=3):
    def go(self, x): return x * self.unit
def mapped(p): return torch.func.vmap(lambda q: q.a + q.b)(p), pytree.tree_map(lambda t: t * 2, p)
def goes(x, o): return o.go(x)
def main():
    torch.compile(mapped, backend="eager")(Pair(ones(4, 4), ones(4, 4)))
    torch.compile(goes, backend="eager")(ones(3), Sub())
    torch.compile(goes, backend="eager")(ones(3), Metre())
    hook = torch.nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 3)
    torch.compile(torch.nn.Linear(4, 4), backend="eager")(ones(4, 4))
    hook.remove()
""",
    "objects of which a pickle says less than they are": """
import array
from torch.nn.attention.bias import causal_lower_right
torch.backends.cuda.matmul.fp32_precision = "tf32"
LIMITS, BYTE = torch.finfo(torch.float16), torch.iinfo(torch.int8)
P, R = typing.ParamSpec("P"), typing.TypeVar("R")
Size = typing.NewType("Size", int)
class Samples(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.samples = array.array("f", range(5000))
    def forward(self, x): return x + 1
class Picks:
    def __init__(self): self.scale, self.cache = 2, {"a": 3}
    def __getstate__(self): return {"scale": self.scale}
@functools.lru_cache(None)
def table(n): return n + 1
table.factor = 5
def decorated(function: typing.Callable[P, R]) -> typing.Callable[P, R]:
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R: return function(*args, **kwargs)
    return wrapper
@decorated
def sized(x, n: Size = Size(2)): return x * n
def picked(x, o): return x * o.scale + o.cache["a"]
def limited(x): return x.clamp(LIMITS.min, LIMITS.max) + BYTE.max
def typed(x): return sized(x) + 1
def biased(q, bias):
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=bias)
def factors(x, f): return x * f.factor
def step(p): p.data.sub_(p.grad * 0.1)
long = {}
exec("def long(x):\\n" + "    x = x.reshape(3).add(1)\\n" * 300 + "    return x", long)
def run(function, *args): torch.compile(function, backend="eager")(*args)
def main():
    assert len(long["long"].__code__.co_code) > 4096
    run(long["long"], ones(3))
    run(Samples(), ones(4))
    run(picked, ones(4), Picks())
    run(limited, ones(4))
    run(typed, ones(4))
    run(factors, ones(4), table)
    run(biased, torch.randn(1, 2, 4, 8), causal_lower_right(4, 4))
    weight = torch.nn.Parameter(ones(3, dtype=torch.bfloat16))
    weight.grad_dtype = torch.float32
    weight.grad = ones(3)
    run(step, weight)
""",
    "the order of a class's members": """
def names(x, o):
    for name in type(o).__dict__.keys():
        x = x + len(name)
    return x
def main():
    class Plain:
        z, a = 1, 2
        def __init__(self): self.b = 4
    class OfParameter(typing.Generic[typing.TypeVar("T")]):
        z, a = 1, 2
    class Abstract(abc.ABC):
        z = 3
        @abc.abstractmethod
        def f(self): ...
        b = 1
    class Concrete(Abstract):
        q, a = 2, 1
        def f(self): return 7
    @dataclasses.dataclass
    class Data:
        z: int = 1
        a: int = 2
    class Slots:
        __slots__ = ("z", "a")
        def __init__(self): self.z, self.a = 1, 2
    for o in (Plain(), OfParameter(), Concrete(), Data(), Slots()):
        before = list(vars(type(o)))
        torch._dynamo.reset()
        torch.compile(names, backend="eager")(ones(3), o)
        assert list(vars(type(o))) == before, (before, list(vars(type(o))))
""",
    "classes that are used before all of their members are there": """
def go(x, o):
    return o.go(x)
class Base:
    registry = {}
    def __init_subclass__(cls, **options): Base.registry[cls.__name__] = cls
    def go(self, x): return x + 1
class Sub(Base):
    pass
class Abstract(abc.ABC):
    registry = []
    def __init_subclass__(cls, **options): Abstract.registry.append(cls)
    def go(self, x): return x + 2
class Concrete(Abstract):
    pass
class Single:
    _only = None
    def __new__(cls):
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only
    def go(self, x): return x + 3
class Config:
    def __getattr__(self, name): return 4
    def go(self, x): return x + CONFIG.scale
CONFIG = Config()
class Register(dict):
    def __setitem__(self, key, value): super().__setitem__(key, value)
    def update(self, *found): super().update(*found)
    def go(self, x): return x + REGISTER["a"]
REGISTER = Register(a=5)
class Numbers(list):
    def append(self, item): super().append(item)
    def extend(self, items): super().extend(items)
    def go(self, x): return x + len(NUMBERS)
NUMBERS = Numbers([1, 2])
class Color:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n
    def __hash__(self): return hash(self.n)
    def go(self, x): return x + len(Color.NAMES)
Color.NAMES = {Color(1): "one"}
class State:
    def __getstate__(self): return {"n": 1}
    def __setstate__(self, state): self.n = state["n"]
    def go(self, x): return x + 6
State.default = State()
def main():
    objects = (
        Sub(), Concrete(), Single(), CONFIG, REGISTER, NUMBERS, Color(1), State()
    )
    for o in objects:
        torch._dynamo.reset()
        torch.compile(go, backend="eager")(ones(2), o)
""",
    "a module before its __init__": """
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return 2 * x
def main():
    torch.compile(lambda x: Scaled()(x), backend="eager")(ones(2))
    torch.compile(Scaled, backend="eager")()
""",
    "classes of other compiles that stay": """
def call(x, o):
    return x + 1 if callable(o) else x
def main():
    f = torch.compile(call, backend="eager")
    kept = []
    for n in range(3):
        class Here:
            value = n
            def __call__(self): return n
        kept.append(Here())
        f(ones(2), kept[-1])
""",
    "two backends of one class": """
def add(x, dtype):
    return x + np.iinfo(dtype).max
def main():
    counter = torch._dynamo.testing.CompileCounter()
    f = torch.compile(add, backend=counter)
    f(ones(2), np.dtype(int))
    f(ones(2), np.dtype(np.int16))
    torch.compile(add, backend=torch._dynamo.testing.CompileCounter())(ones(2), np.dtype(int))
""",
    "two backends of the program's": """
class Backend:
    def __call__(self, module, inputs): return module.forward
def mine(module, inputs): return module.forward
def add(x, n):
    return x + n
def main():
    for backend in (mine, Backend(), Backend()):
        f = torch.compile(add, backend=backend, dynamic=False)
        f(ones(2), 1)
        f(ones(2), 2)
""",
    "a backend of the program's that calls Inductor": """
from torch._inductor.compile_fx import compile_fx
def mine(module, inputs): return compile_fx(module, inputs)
def main():
    torch.compile(lambda x: x.sin() + 1, backend=mine)(ones(2))
""",
    "transforms in one compile after another": """
def square(x):
    return (x * x).sum()
def main():
    torch.compile(lambda x: torch.func.grad(square)(x), backend="eager")(ones(2))
    torch.func.grad(torch.compile(square, backend="eager"))(ones(2))
    torch._dynamo.reset()
    torch.compile(lambda x: torch.func.grad(square)(x) + 1, backend="eager")(ones(2))
""",
    "a function with a cache": """
def main():
    @functools.lru_cache(maxsize=3)
    def double(x):
        return 2 * x
    torch.compile(double, backend="eager")(ones(2))
    torch.compile(lambda x: double(x) + 1, backend="eager")(ones(2))
""",
    "functions that share a variable": """
def main():
    n, k = ones(2), 0
    def add(x):
        nonlocal n, k
        n, k = n + x, k + 1
        return n
    def get(x):
        return n * 2 + k
    def fn(f, g, x):
        y = f(x) + g(x)
        torch._dynamo.graph_break()
        return y + n
    torch.compile(fn, backend="eager")(add, get, ones(2))
    torch.compile(lambda x: add(x) + get(x), backend="eager")(ones(2))
    class Number:
        def __init__(self, value):
            super().__init__()
            self.value = value
        def __add__(self, other):
            return Number(self.value + other.value)
    def total(a, b):
        return (Number(a) + Number(b)).value
    torch.compile(total, backend="eager")(ones(2), ones(2))
    def even(x, i): return x if i == 0 else odd(x + 1, i - 1)
    def odd(x, i): return x if i == 0 else even(x * 2, i - 1)
    torch.compile(even, backend="eager")(ones(2), 5)
""",
    "a class of named tuples": """
def main():
    class Pair(typing.NamedTuple):
        a: torch.Tensor
        b: torch.Tensor
    class Named(Pair):
        pass
    def build(x):
        return Named(a=x + 1, b=x)
    torch.compile(build, backend="eager")(ones(2))
""",
    "arrays with strides": """
def main():
    f = torch.compile(lambda a: [row + 1 for row in a], backend="eager", dynamic=False)
    for a in (np.ones((2, 3)).T, np.broadcast_to(np.ones(3), (2, 3)), np.ones((4, 4))[::2, ::2]):
        f(a)
    class Holder: pass
    holder = Holder()
    holder.field = np.zeros(4, np.dtype([("a", "i1"), ("b", "f4")]))["b"]
    torch.compile(lambda x, h: x + 1, backend="eager")(ones(2), holder)
""",
    "a function that chooses guards": """
def main():
    keep = {"TENSOR_MATCH"}
    options = {"guard_filter_fn": lambda entries: [e.guard_type in keep for e in entries]}
    f = torch.compile(lambda x, n: x + n, backend="eager", options=options)
    f(ones(2), 1)
    f(ones(3), 1)
    options = {"guard_filter_fn": torch.compiler.skip_guard_on_globals_unsafe}
    torch.compile(lambda x: 2 * x, backend="eager", options=options)(ones(2))
""",
    "sources named as dynamic": """
def main():
    with torch.compiler.config.patch(dynamic_sources="L['x']"):
        torch.compile(lambda x: x * x, backend="aot_eager")(ones(2))
""",
    "inside of transforms that forbid hooks on saved tensors": """
def main():
    def inner(x):
        return torch.func.grad(lambda y: (y * y).sum())(x)
    f = torch.compile(inner, backend="eager")
    f(ones(2))
    torch.func.vmap(f)(ones(2, 2))
    torch.func.grad(lambda x: f(x).sum())(ones(2))
""",
    "inside of forward-mode AD": """
def main():
    f = torch.compile(lambda x: x * 2, backend="eager")
    f(ones(2))
    with torch.autograd.forward_ad.dual_level():
        f(ones(2))
""",
    "private slots, and members that are worked out once": """
class Private:
    __slots__ = ("__a", "__dict__")
    def __init__(self): self.__a = 3
    @functools.cached_property
    def scale(self): return 2
    def go(self, x): return x * self.__a * self.scale
def main():
    torch.compile(lambda x, o: o.go(x), backend="eager")(ones(2), Private())
""",
    "a built-in function that its module has no more": """
def main():
    class Test:
        def __init__(self):
            self.before, sys.unraisablehook = sys.unraisablehook, lambda event: None
            self.scale = 2
    test = Test()
    def scaled(x):
        return x * test.scale
    torch.compile(scaled, backend="eager")(ones(2))
""",
    "a dict with a parameter as key": """
def build(d, x):
    d["a"] = x + 1
    return d["b"]
def main():
    f = torch.compile(build, backend="eager")
    f({"b": ones(2), torch.nn.Parameter(ones(1)): 3, "c": ones(2)}, ones(2))
""",
    "methods of torch's classes, and objects known by their identity": """
from torch._dynamo.comptime import comptime
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x + x
    @staticmethod
    def backward(ctx, g): return g
class Held(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fn = Doubled.apply
    def forward(self, x): return self.fn(x)
def breaks(x):
    comptime.graph_break()
    return x + torch.randn(x.size())
def default(x, given=dataclasses.MISSING):
    return x.sin() if given is dataclasses.MISSING else x.cos()
def main():
    torch.compile(Held(), backend="eager")(torch.ones(2, requires_grad=True))
    torch.compile(breaks, backend="eager")(ones(3))
    torch.compile(default, backend="eager")(ones(3))
""",
    "containers whose class fills them by itself": """
class Registry(dict):
    def __setitem__(self, key, value): super().__setitem__(str(key.__class__), value)
    def get(self, key): return super().get(str(key.__class__)) or {}
class Twice(list):
    def append(self, x): super().append(x * 2)
    def extend(self, items): raise ValueError
registry, twice, module = Registry(), Twice(), torch.nn.Linear(2, 2)
registry[module] = {"a": 1}
twice.append(3)
def fn(x, module, twice): return x + len(registry.get(module)) + twice[0]
def main():
    torch.compile(fn, backend="eager")(ones(3), module, twice)
""",
    "functions of one decorator": """
def decorated(function):
    def wrapper(x): return function(x)
    return wrapper
def outer(function, x): return function(x)
def main():
    compiled = torch.compile(outer, backend="eager")
    compiled(decorated(lambda x: x.sin()), ones(3))
    compiled(decorated(lambda x: x.cos()), ones(3))
""",
    "a registry of a module, in a frame that is left to Python": """
import pathlib
MODULE = '''
registry = {}
def looked_up(key): return registry.get(key) or ()
'''
pathlib.Path(__file__).with_name("registry_of_frames.py").write_text(MODULE)
import registry_of_frames
registry_of_frames.registry["a"] = (1, 2)
def skipped(x):
    for _ in registry_of_frames.looked_up("a"): pass
def main():
    torch.compile(skipped, backend="eager")(ones(3))
""",
    "a backend for debugging around the program's own": """
class Own:
    def __call__(self, module, inputs): return module
def main():
    counter = torch._dynamo.testing.CompileCounterWithBackend(Own())
    torch.compile(lambda x: x.sin(), backend=counter)(ones(3))
""",
    "config entries that hold classes": """
class Marked(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
def main():
    with torch._dynamo.config.patch(traceable_tensor_subclasses={Marked}):
        x = ones(3).as_subclass(Marked)
        torch.compile(lambda x: x.sin() + 1, backend="eager")(x)
""",
    "tensors of the program's classes": """
class Image(torch.Tensor):
    def __new__(cls, data, tag):
        made = torch.as_tensor(data).as_subclass(cls)
        made.tag = tag
        return made
    def __init__(self, *_): pass
class Weight(torch.nn.Parameter): pass
image = Image(torch.ones(4, 4), "n")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.image = Weight(ones(4)), image
    def forward(self, x): return x * self.weight + self.image
def main():
    torch.compile(lambda x, y: x.sin() + len(x.tag) + y, backend="eager")(image, image[0])
    torch.compile(Model(), backend="eager")(ones(4)).sum().backward()
""",
    "jagged tensors": """
def main():
    nested, offsets = torch.nested, torch.tensor([0, 3, 7, 10])
    def listed():
        rows = [torch.randn(2, 4), torch.randn(4, 4)]
        return nested.nested_tensor(rows, layout=torch.jagged)
    nested.nested_tensor_from_jagged(torch.randn(3, 2), torch.tensor([0, 1, 3]))
    both = torch.compile(lambda x, y: (x * 2 + y).sin(), backend="aot_eager")
    one = torch.compile(lambda x: (x * 2).sin(), backend="aot_eager")
    whole = nested.nested_tensor_from_jagged(torch.randn(10, 4), offsets)
    both(whole, whole)
    one(whole.transpose(1, 2))
    held = nested.nested_tensor_from_jagged(torch.randn(10, 4, requires_grad=True), offsets)
    one(held).values().sum().backward()
    torch._dynamo.reset()
    one(listed().requires_grad_()).values().sum().backward()
    first = listed()
    both(first, nested.nested_tensor_from_jagged(torch.randn(6, 4), first.offsets()))
""",
    "functions of modules that the program has marked": """
import pathlib
pathlib.Path(__file__).with_name("marked_of_frames.py").write_text("def inner(x): return x + 1")
import marked_of_frames
from marked_of_frames import inner
def main():
    torch._dynamo.allow_in_graph(inner)
    torch.compile(lambda x: inner(x) * 2, backend="eager")(ones(3))
    torch.compile(lambda x: marked_of_frames.inner(x) * 2, backend="eager")(ones(3))
    torch._dynamo.disallow_in_graph(torch.sub)
    torch.compile(lambda x: torch.sub(x, 1) * 2, backend="eager")(ones(3))
""",
    "where __torch_function__ is switched off": """
class Marked(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
def main():
    marked = ones(3).as_subclass(Marked)
    compiled = torch.compile(lambda x: x.sin(), backend="eager")
    compiled(marked)
    with torch._C.DisableTorchFunctionSubclass():
        compiled(marked)
    with torch._C.DisableTorchFunction():
        compiled(ones(3))
""",
    "what lives with its process or thread": """
import contextvars, threading
local, variable, unset = threading.local(), contextvars.ContextVar("v"), contextvars.ContextVar("u")
default, itself = contextvars.ContextVar("d", default=2), contextvars.ContextVar("i")
itself.set((itself, 4))
lock, again, event = threading.Lock(), threading.RLock(), threading.Event()
local.by, event.lock = 5, lock
variable.set(7)
def main():
    def f(x):
        with lock, again:
            found = variable.get() + unset.get(3) + default.get() + itself.get()[1]
            return x * local.by + found + event.is_set()
    torch.compile(f, backend="eager")(ones(3))
""",
    "containers that refer weakly": """
import weakref
from torch.utils.weak import WeakTensorKeyDictionary
class Other: pass
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.other, self.tensor = Other(), ones(2)
        self.values = weakref.WeakValueDictionary({"a": self.other})
        self.keys = weakref.WeakKeyDictionary({self.other: 1})
        self.all = weakref.WeakSet([self.other])
        self.tensors = WeakTensorKeyDictionary()
        self.tensors[self.tensor] = 2
    def forward(self, x): return x * len(self.__dict__) + self.tensor.sum()
def main():
    torch.compile(Model(), backend="eager")(ones(3))
""",
    "operators of a library, in variables, and before a failure": """
library = torch.library.Library("classes_lib", "FRAGMENT")
library.define("scale(Tensor x, float s) -> Tensor")
library.impl("scale", lambda x, s: x * s, "CPU")
torch.library.register_fake("classes_lib::scale", lambda x, s: torch.empty_like(x), lib=library)
library.define("parts(Tensor x) -> (Tensor, Tensor)")
library.impl("parts", lambda x: (x + 1, x - 1), "CPU")
ways = {"overload": torch.ops.classes_lib.scale.default, "packet": torch.ops.classes_lib.scale}
def held(x, way): return ways[way](x, 2.0)
def broken(x):
    y = torch.ops.classes_lib.scale(x, 3.0)
    torch._dynamo.graph_break()
    return y
def without_a_fake_kernel(x): return torch.ops.classes_lib.parts(x)[0]
def main():
    calls = (held, "overload"), (held, "packet"), (broken,), (without_a_fake_kernel,)
    for function, *more in calls:
        torch._dynamo.reset()
        try:
            torch.compile(function, backend="aot_eager", fullgraph=True)(ones(3), *more)
        except torch._dynamo.exc.Unsupported:
            assert function not in (held,)
""",
    "objects that a pickle would have their classes make anew": """
class Pair(typing.NamedTuple):
    init: typing.Callable
    update: typing.Callable
class Chain(Pair):  # as torchopt's
    def __new__(cls, *pairs):
        functions = [pair.update for pair in pairs]
        def update(x, state):
            if len(functions) != len(state): raise ValueError("one state each")
            for function, part in zip(functions, state): x = function(x, part)
            return x
        self = super().__new__(cls, len, update)
        self.pairs = pairs
        return self
    def __reduce__(self): return Chain, self.pairs[:1]
class Grown:
    def __init__(self, n): self.n, self.more = n, []
    def __reduce__(self): return Grown, (self.n,)
class Kind(enum.Enum):
    ONE = 1
def main():
    chain = Chain(Pair(len, lambda x, q: x * q), Pair(len, lambda x, q: x + q))
    grown = Grown(3)
    grown.more.append(4); grown.n = 5
    def step(x, chain, grown, kind):
        x = chain.update(x, (2, 3)) + grown.n + sum(grown.more)
        return x.sin() if kind is Kind.ONE else x
    compiled = torch.compile(step, backend="eager", fullgraph=True)
    compiled(ones(3), chain, grown, Kind.ONE)
""",
    "objects that refuse to be pickled": """
class Wrapper:
    def __init__(self, f): self.f, self.scale = f, 3
    def __call__(self, x): return self.f(x) * self.scale
    def __getstate__(self): raise TypeError("take it apart first")
class Slotted:
    __slots__ = ("a", "b", "__c")
    def __init__(self): self.a, self.__c = 2, 5
    def __reduce__(self): raise RuntimeError("no")
    def __setattr__(self, name, value): object.__setattr__(self, name, value + 1)
    def total(self): return self.a + self.__c
class Closed(Wrapper):
    __slots__ = ("extra",)
    def __getattribute__(self, name):
        if name == "__dict__": raise AttributeError(name)
        return object.__getattribute__(self, name)
    def __setstate__(self, state): raise TypeError("nor put together")
def main():
    def step(x, wrapper, slotted, closed):
        return wrapper(x) + slotted.total() + closed.extra * closed.scale
    closed = Closed(torch.cos)
    closed.extra = 7
    f = torch.compile(step, backend="eager")
    f(ones(3), Wrapper(torch.sin), Slotted(), closed)
""",
    "a frozen class with slots": """
@dataclasses.dataclass(frozen=True)
class Info:
    __slots__ = ("a", "b")
    a: int
    b: str
info = Info(2, "x")
def main():
    torch.compile(lambda x: x * info.a, backend="eager")(ones(3))
""",
    "a program that is profiled, with torch's own trace log": """
from torch.profiler import ProfilerActivity, profile
def main():
    with profile(activities=[ProfilerActivity.CPU]):
        x = torch.ones(3, requires_grad=True)
        torch.compile(lambda x: (x * 2).relu().sum(), backend="aot_eager")(x).backward()
""",
    "gradients with marks of their own": """
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(net.parameters())
@torch.compile(backend="aot_eager")
def update():
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
def main():
    net(ones(3, 4)).sum().backward()
    update()
    assert vars(net.weight.grad)
""",
    "names that earlier compiles have taken": """
@torch._dynamo.assume_constant_result
def _limits():
    return (1, 2)
def pair(x, o):
    return x + len(_limits()), _limits()
def main():
    for o in (1, 2, 3):
        torch._dynamo.reset()
        torch.compile(pair, backend="eager", fullgraph=True)(ones(3), o)
""",
    "results out of a cache that other compiles filled": """
def homogeneous(x):
    x = torch.nn.functional.pad(x, [0, 0, 0, 1])
    x[..., -1, -1] += 1.0
    return x
def main():
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(homogeneous, backend="aot_eager")(ones(1, 2, 3))
""",
    "the levels of loggers, and the numbers of hooks": """
import logging
def main():
    logging.getLogger("app").setLevel(logging.ERROR)
    logger, net = logging.getLogger("app.part"), torch.nn.Linear(2, 2)
    for _ in range(3):
        net.register_forward_hook(lambda *given: None)
    def f(x):
        logger.info("traced")
        net.register_forward_hook(lambda *given: None)
        return net(x)
    torch.compile(f, backend="aot_eager")(ones(2, 2))
""",
}


_LINEARIZED = """
from torch.func import linearize
def linearized(x):
    result, derivative = linearize(torch.sin, x)
    return result + derivative(torch.ones_like(x))
def main():
    torch.compile(linearized, backend="aot_eager")(ones(4))
"""
_FAILS = """
from torch._dynamo.backends.common import aot_autograd
def lower(module, inputs): raise ValueError("no rule for sin")
def main():
    torch.compile(lambda x: x.sin(), backend=aot_autograd(fw_compiler=lower))(ones(2))
"""


def _replays(text: str, folder: Path, status: int = 0) -> list[Row]:
    """Record a program with its frames, and replay each of them."""
    program, target = folder / "program.py", folder / "run.db"
    program.write_text(f"{_BEGINNING}{text}main()\n")
    environment = {
        **os.environ, "TORCHREEL": f"full:{target}", "TORCHREEL_FRAMES": "all",
        "TORCH_TRACE": str(folder / "trace"),
    }  # fmt: skip
    done = forks.run([sys.executable, program], env=environment)
    assert done.returncode == status, done.stderr
    with Store.open(target, write=True) as store:

        def one(compile: Compile, entry: str) -> Verdict:
            return replay(store, compile, entry, trust=True)

        return list(replay_all(store, None, ("frame",), one))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_frame_is_replayed_as_it_was(name: str, tmp_path: Path) -> None:
    rows = _replays(PROGRAMS[name], tmp_path)
    assert rows
    for row in rows:
        verdict = row.verdict
        told = (verdict.verdict, verdict.detail, verdict.difference)
        assert told == ("identical", "", ""), row.compile.place


@pytest.mark.slow
def test_a_frame_that_is_skipped_while_another_graph_is_traced(tmp_path: Path) -> None:
    """Its event had the stage of the graph's compile: replayed by itself, it "diverged"."""
    rows = _replays(_LINEARIZED, tmp_path)
    skipped = [row for row in rows if row.compile.status == "skipped"]
    assert len(skipped) > 1
    for row in skipped:
        assert row.verdict.verdict == "identical", row.verdict.difference


@pytest.mark.slow
def test_a_failure_of_a_backend_that_is_not_here_is_refused(tmp_path: Path) -> None:
    (row,) = _replays(_FAILS, tmp_path, status=1)
    assert row.verdict.verdict == "refused"
    assert "failed in its backend" in row.verdict.detail


_OWN_OPERATOR = """
def main():
    lib = torch.library.Library("frame_classes", "FRAGMENT")
    torch.library.define("frame_classes::wave", "(Tensor x) -> Tensor", lib=lib)
    torch.library.impl("frame_classes::wave", "CompositeImplicitAutograd", torch.sin, lib=lib)
    torch.compile(lambda x: torch.ops.frame_classes.wave(x), backend="aot_eager")(ones(2))
"""


@pytest.mark.slow
def test_a_frame_that_calls_an_operator_that_is_code_is_refused(tmp_path: Path) -> None:
    (row,) = _replays(_OWN_OPERATOR, tmp_path)
    assert row.verdict.verdict == "refused"
    assert "frame_classes.wave" in row.verdict.detail
    assert "--import MODULE" in row.verdict.detail


_OWN_FAKE_MODE = """
from torch._subclasses.fake_tensor import FakeTensorMode
def main():
    with FakeTensorMode():
        torch.compile(lambda x: x.sin(), backend="eager")(ones(2))
"""


@pytest.mark.slow
def test_a_frame_in_a_fake_mode_of_the_program_is_refused(tmp_path: Path) -> None:
    (row,) = _replays(_OWN_FAKE_MODE, tmp_path)
    assert row.verdict.verdict == "refused"
    assert "a FakeTensorMode of its own" in row.verdict.detail


SETTINGS = """
import torch
FLAG = False
LEVEL = 1.0
api_token = ""
class Switch:
    on = False
    inherited = None
class Debug(Switch):
    kind = "none"
    @classmethod
    def is_on(cls): return bool(cls.on and cls.inherited)
class Options:
    depth = 1
    def __init__(self): self.wide, self.inner = False, None
options = Options()
options.inner = Options()
def by_module(x):
    return (x.sin() if FLAG else x) * LEVEL + len(api_token)
def by_object(x):
    return x.tan() + options.inner.depth + options.depth if options.inner.wide else x
def by_class(x):
    return x.cos() + len(Debug.kind) if Debug.is_on() else x
"""
CHANGED = """
import library_settings
from library_settings import by_class
def everything(x):
    if library_settings.FLAG and library_settings.Debug.is_on():
        return library_settings.by_module(x) + by_class(x)
    return x
def main():
    library_settings.FLAG, library_settings.LEVEL = True, 2.5
    library_settings.Debug.on = True
    library_settings.Switch.inherited = 7
    library_settings.Debug.kind = "all of it"
    library_settings.options.inner.wide, library_settings.options.inner.depth = True, 3
    library_settings.Options.depth = 4
    functions = by_class, library_settings.by_module, library_settings.by_object, everything
    for function in functions:
        torch.compile(function, backend="eager")(ones(3))
    library_settings.Debug.on = False
    torch._dynamo.reset()
    torch.compile(everything, backend="eager")(ones(3))
"""


@pytest.mark.slow
def test_settings_of_modules_and_classes_are_what_they_were(tmp_path: Path) -> None:
    """Libraries keep switches there, which a program sets while it runs (`gpytorch.settings`)."""
    (tmp_path / "library_settings.py").write_text(SETTINGS)
    rows = _replays(CHANGED, tmp_path)
    assert [row.verdict.verdict for row in rows] == ["identical"] * 5
    with Store.open(tmp_path / "run.db") as store:
        (last,) = [
            json.loads(store.read_blob(bundle.tensors))["patches"]["kept"]
            for bundle in [queries.frame_bundle(store, rows[-1].compile)]
            if bundle is not None and bundle.tensors is not None
        ]
    assert {(row["class"], row["member"]) for row in last} >= {("", "FLAG"), ("Debug", "on")}


@pytest.mark.slow
def test_a_setting_whose_name_says_that_it_is_secret_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "library_settings.py").write_text(SETTINGS)
    secret = "zq-setting-wren-42"
    text = CHANGED.replace(
        "library_settings.Debug.on = True", f"library_settings.api_token = {secret!r}"
    )
    _replays(text, tmp_path)
    with Store.open(tmp_path / "run.db") as store:
        bundles = [queries.frame_bundle(store, row) for row in queries.compiles(store, 1)]
        held = [
            store.read_blob(digest)
            for bundle in bundles
            if bundle is not None
            for digest in (bundle.digest, bundle.tensors)
            if digest is not None
        ]
    packed = [base64.b64decode(row["data"]) for each in held for row in _kept(each)]
    assert len(packed) >= 4
    assert not any(secret.encode() in data for data in [*held, *packed])


def _kept(document: bytes) -> list[dict[str, str]]:
    """The patches in the document of a bundle; none in its pickle."""
    if not document.startswith(b"{"):
        return []
    found: list[dict[str, str]] = json.loads(document)["patches"]["kept"]
    return found


_TEXTS = """
WORDS = set("alpha beta gamma delta epsilon zeta eta theta iota kappa".split())
def listed(x):
    for word in WORDS: x = x * len(word) + 1
    return x
def main():
    torch.compile(listed, backend="eager")(ones(3))
"""


@pytest.mark.slow
def test_a_set_of_texts_with_another_order_is_said(tmp_path: Path) -> None:
    (row,) = _replays(_TEXTS, tmp_path)
    assert row.verdict.verdict == "refused"
    assert "a set (10 items) whose order follows from hashes" in row.verdict.detail


STACK = """
import torch
STACK = []
class Messenger:
    def __init__(self, scale, log): self.scale, self.log = scale, log
    def __enter__(self): STACK.append(self)
    def __exit__(self, *error): STACK.pop()
    def process(self, x): return x * self.scale + len(self.log)
def apply(x):
    for messenger in STACK: x = messenger.process(x)
    torch._dynamo.graph_break()
    return x.sin()
def deferred(x):
    def inner(y):  # kept by value, with the globals of this module
        return sum((m.process(y) for m in STACK), y)
    return inner
"""
WITHIN = """
import library_stack
from library_stack import Messenger, apply
def step(x, scale): return apply(x) + scale
def main():
    scale = ones(3)
    compiled = torch.compile(step, backend="eager")
    with Messenger(scale, ["a"]), Messenger(ones(3) * 2, {"k": 1}):
        compiled(ones(3), scale)
        torch.compile(library_stack.deferred(scale), backend="eager")(ones(3))
    compiled(ones(3), scale)
"""


@pytest.mark.slow
def test_a_stack_of_a_module_is_as_it_was_with_its_tensors(tmp_path: Path) -> None:
    """Also for an attempt that ended at a graph break, which made no guards (pyro's handlers)."""
    (tmp_path / "library_stack.py").write_text(STACK)
    rows = _replays(WITHIN, tmp_path)
    statuses = [row.compile.status for row in rows]
    assert statuses.count("restarted") >= 3
    assert {row.verdict.verdict for row in rows} == {"identical"}
