"""Programs that fail, full of canaries: names, texts and numbers that occur nowhere else.

Lives here: what stands around the bugs of `benchmarks.triage.programs`, and the canaries in it. Not
here: how a program is recorded (`benchmarks.triage.recordings`), the search for a canary
(`canaries`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.triage.programs import BUGS, Variant

VARIANTS = 5
_OF_DYNAMO = ("checkpointed_blocks", "branch_on_data", "guard_on_data", "printing")
"""Failures of Dynamo itself are programs: `share` refuses those."""

_HEAD = """
import os
import torch
import torch.nn.functional as F

SIZE, DTYPE = {size}, torch.{dtype}
torch.manual_seed({seed})
os.environ["{variable}"] = "{setting}"
# {comment}
{bug}
"""

_MODULE = '''
class {cls}(torch.nn.Module):
    """The {docstring} of the company."""

    def __init__(self):
        super().__init__()
        self.{attribute} = torch.nn.Linear(16, 32)
        self.{container} = torch.nn.ModuleDict({{"{key}": torch.nn.LayerNorm(32)}})
        self.register_buffer("{buffer}", torch.tensor([{value1}, {value2}]))
        self.{label} = "{text}"

    def forward(self, {input}, *{inputs}, {option}=None):
        """Tell of {doc2}."""
        # {comment2}
        {local} = self.{attribute}({input}) * {float1}
        {local} = self.{container}["{key}"]({local}) + {integer1}
        {other} = torch.tensor([{float2}, {float3}]) + self.{buffer}
        return {{"{dictkey}": {local}}}, {other}.sum() + {option}, {function}(*{inputs})

model = {cls}()
'''

_FUNCTION = '''
def {helper}({values}, {option}):
    """Add {docstring}."""
    return [{value}.square().sum() * {float1} for {value} in {values}]

{table} = torch.tensor([{value1}, {value2}])

def {cls}({input}, *{inputs}, {option}=None):
    {local} = "{text}"  # {comment2}
    {other} = {helper}({input}.unbind(1), {option})
    {label} = {function}(*{inputs})
    {buffer} = {{"{dictkey}": torch.stack({other}) / {integer1}, {local}: {input}.cumsum(0)}}
    return {buffer}, {label}, torch.tensor([{float2}, {float3}]).exp() * {option}

model = {cls}
'''

_OPERATOR = '''
@torch.library.custom_op("{namespace}::{operator}", mutates_args=())
def {helper}({values}: torch.Tensor, {label}: str, {value}: float) -> torch.Tensor:
    """Count {docstring}."""
    return {values}.clone()

@{helper}.register_fake
def {table}({values}, {label}, {value}):
    return torch.empty_like({values})

class {cls}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.{attribute} = torch.nn.Parameter(torch.tensor([[{value1}], [{value2}]]))
        self.{buffer} = torch.nn.Conv1d(3, 8, 3)

    def forward(self, {input}, *{inputs}, {option}=None):
        # {comment2}
        {local} = torch.ops.{namespace}.{operator}({input}, "{text}", {float1})
        {other} = self.{buffer}({local}).clamp(max={integer1}) * {float2}
        return {{"{dictkey}": {other}, "{key}": self.{attribute} * {option} + {float3}}}, \
{function}(*{inputs})

model = {cls}()
'''

_CALL = """
result = torch.compile(model{arguments})(torch.randn(2, 3, 16), *make_inputs(), {option}=2.0)
"""

_TEXTS = (
    "variable", "setting", "comment", "cls", "docstring", "attribute", "container", "key", "buffer",
    "label", "text", "input", "inputs", "option", "doc2", "comment2", "local", "other", "dictkey",
    "helper", "values", "value", "table", "namespace", "operator", "function", "folder",
)  # fmt: skip
_FLOATS = ("value1", "value2", "float1", "float2", "float3")
_LETTERS = "bcdfghjkmpqvwxz"


@dataclass(frozen=True)
class Planted:
    """One program, and the canaries in it by kind."""

    variant: Variant
    canaries: dict[str, str | int | float]


def programs(variants: int = VARIANTS) -> Iterator[Planted]:
    """Yield every program: each graph's bug in `variants` surroundings."""
    for number in range(variants):
        for name, bug in BUGS.items():
            if name not in _OF_DYNAMO:
                yield _program(name, bug.sizes[number % len(bug.sizes)], number)


def _program(name: str, size: int, number: int) -> Planted:
    bug, draw = BUGS[name], random.Random(f"{name} {number}")
    canaries: dict[str, str | int | float] = {key: _word(draw) for key in _TEXTS}
    canaries |= {key: round(draw.uniform(0.1, 0.9), 12) for key in _FLOATS}
    canaries["integer1"] = draw.randrange(10**7, 10**9)
    text = bug.text
    for before, after in bug.spellings if number % 2 else ():
        text = text.replace(before, after)
    text = text.replace("fn(", f"{canaries['function']}(")
    template = _HEAD + (_MODULE, _FUNCTION, _OPERATOR)[number % 3] + _CALL
    arguments = ", dynamic=True" if number == 3 else ""
    written = template.format(
        size=size, seed=number, bug=text, arguments=arguments,
        dtype=bug.dtypes[number // 2 % len(bug.dtypes)], **canaries,
    )  # fmt: skip
    used = {key: found for key, found in canaries.items() if str(found) in written}
    used["folder"] = canaries["folder"]
    variant = Variant(
        f"{name}-{number}-{canaries['folder']}", bug.issue, number, written, bug.expected,
        bug.is_wrong, number % 4,
    )  # fmt: skip
    return Planted(variant, used)


def _word(draw: random.Random) -> str:
    return "".join(draw.choice(_LETTERS) for _ in range(9))
