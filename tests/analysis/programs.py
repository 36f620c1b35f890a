"""Programs with a known story: the lines that matter are marked `# <name>`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.fx.experimental._config

Tensor = torch.Tensor
_SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


def line_of(mark: str) -> str:
    """`file:line` of the line that is marked."""
    (number,) = (n for n, line in enumerate(_SOURCE, 1) if line.rstrip().endswith(f"# <{mark}>"))
    return f"{__file__}:{number}"


def code_of(mark: str) -> str:
    """The source of the line that is marked."""
    (line,) = (line for line in _SOURCE if line.rstrip().endswith(f"# <{mark}>"))
    return line.strip()


# -- sizes that become static ---------------------------------------------------------------------


def branch(x: Tensor) -> Tensor:
    y = x + 1  # <branch first>
    if x.shape[0] == 4:  # <branch>
        return y * 2
    return y


def marked(x: Tensor) -> Tensor:
    y = x * 2
    for _ in range(x.shape[0]):  # <marked>
        y = y + 1
    return y


def key(x: Tensor) -> Tensor:
    table = {x.shape[1]: 2}  # <key>
    return x * len(table)


def zero_one(x: Tensor, y: Tensor) -> Tensor:
    return x + y  # <zero_one>


def tied(x: Tensor, y: Tensor) -> Tensor:
    if x.shape[0] == y.shape[0]:  # <tie>
        x = x + y
    if x.shape[0] == 5:  # <tied>
        x = x * 2
    return x


def checked(x: Tensor) -> Tensor:
    torch._check(x.shape[0] == 6)  # <checked>
    return x + 1


LINEAR = torch.nn.Linear(4, 2)


def library(x: Tensor) -> Tensor:
    return LINEAR(x)  # <library>


def constant(x: Tensor, n: int) -> Tensor:
    return x * n  # <constant>


def dynamic_still(x: Tensor) -> Tensor:
    if x.shape[0] > 3:  # <dynamic_still>
        return x + 1
    return x


def unbacked(x: Tensor) -> Tensor:
    n = x.sum().item()  # <unbacked>
    torch._check(n >= 2)  # <unbacked at least>
    torch._check(n % 3 == 0)
    return torch.zeros(n)


def lowered(x: Tensor) -> Tensor:
    y = torch.nn.functional.adaptive_avg_pool2d(x, (2, 2))  # <lowered>
    none = y.flatten(1)[:, :0]
    return torch.scatter(none, 1, none, none)  # Inductor fails here, before it calls a compiler


# -- frames ---------------------------------------------------------------------------------------


def broken(x: Tensor) -> Tensor:
    y = x + 1
    if x.shape[0] == 3:  # <broken size>
        y = y * 2
    print_it(y)  # <broken>
    return y * 2


def print_it(x: Tensor) -> None:
    torch._dynamo.graph_break("for the test")  # <graph break>


def again(x: Tensor, n: int) -> Tensor:
    return x * n  # <again>


def _call(function: Callable[..., object], *inputs: object, **options: Any) -> None:
    compiled = torch.compile(function, **{"backend": "eager", **options})
    # Those that break the graph or a constraint are meant to.
    with contextlib.suppress(Exception):
        compiled(*inputs)


def _marked_input() -> Tensor:
    x = torch.ones(3, 2)
    torch._dynamo.mark_dynamic(x, 0)
    return x


def run() -> None:
    """Compile each of them; the order decides their names (0/0, 1/0, ...)."""
    torch._dynamo.reset()
    with _settings():
        _call(branch, torch.ones(4, 3), dynamic=True)
        _call(marked, _marked_input())
        _call(key, torch.ones(5, 3), dynamic=True)
        _call(zero_one, torch.ones(1, 3), torch.ones(1, 3), dynamic=True)
        with torch.fx.experimental._config.patch(use_duck_shape=False):
            _call(tied, torch.ones(5), torch.ones(5), dynamic=True)
        _call(checked, torch.ones(6), dynamic=True)
        _call(library, torch.ones(3, 4), dynamic=True)
        _call(constant, torch.ones(3), 7)
        _call(dynamic_still, torch.ones(4), dynamic=True)
        _call(unbacked, torch.tensor([1, 2]), fullgraph=True)
        _call(broken, torch.ones(3), dynamic=True)
        _call(lowered, torch.ones(2, 3, 8, 9), dynamic=True, backend="inductor")
        _limited()
        _recompile()


def _recompile() -> None:
    compiled = torch.compile(again, backend="eager")
    compiled(torch.ones(3), 2)
    compiled(torch.ones(3), 5)
    compiled(torch.ones(4), 6)  # <again is called>


def limited(x: Tensor, n: int) -> Tensor:
    return x + n  # <limited>


def _limited() -> None:
    settings = {"recompile_limit": 1, "automatic_dynamic_shapes": False}
    with torch._dynamo.config.patch(settings):
        compiled = torch.compile(limited, backend="eager")
        compiled(torch.ones(3), 3)
        compiled(torch.ones(3), 4)


NAMES = {
    "branch": "0/0", "marked": "1/0", "key": "2/0", "zero_one": "3/0", "tied": "4/0",
    "checked": "5/0", "library": "6/0", "constant": "7/0", "dynamic_still": "8/0",
    "unbacked": "9/0", "broken": "10/0",
}  # fmt: skip


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        yield
