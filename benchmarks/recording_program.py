"""One compile, measured from inside: what `recording` runs, with and without a recorder.

    python benchmarks/recording_program.py MODEL static|dynamic aot_eager|inductor [CALLS]

Prints a JSON object: CPU seconds (of this process and its children) and wall seconds of the first
call, peak memory in KiB, and microseconds per later call (of CALLS; with 0 the process ends before
its first call, for others to be compared with).  Imports are not counted: they cost the
same with any recorder, except the recorder's own, which come after the first compile has begun.
"""

import gc
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable

import torch
import torch._dynamo  # what torch.compile imports at its first use, on everybody's account
from torch.fx.experimental.symbolic_shapes import ShapeEnv

CALLS = "300"
SHAPE_EVENTS = "RECORD_SHAPE_EVENTS"
"""Set: torch's own recording of ShapeEnv events is on (it has no switch of its own)."""
SETUP = "RECORD_SETUP"
"""A number: the state of the interpreter in which the program makes its first call, see `_set_up`.
"""


def _gpt2(layers: int) -> tuple[torch.nn.Module, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=layers, n_embd=64, n_head=4, vocab_size=100, n_positions=64,
        bos_token_id=0, eos_token_id=0, use_cache=False,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval(), torch.randint(0, 100, (2, 17))


def _bert() -> tuple[torch.nn.Module, torch.Tensor]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128,
        vocab_size=100,
    )  # fmt: skip
    return BertModel(config).eval(), torch.randint(0, 100, (2, 17))


def _cnn() -> tuple[torch.nn.Module, torch.Tensor]:
    """A training step."""
    nn = torch.nn
    widths = [3, 8, 16, 16]
    blocks: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        blocks += [nn.Conv2d(before, after, 3), nn.BatchNorm2d(after), nn.ReLU()]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return model.train(), torch.randn(4, 3, 24, 24)


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "gpt2-2": lambda: _gpt2(2),
    "gpt2-12": lambda: _gpt2(12),
    "bert": _bert,
    "cnn-train": _cnn,
}


def _cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if torch.is_tensor(leaf)]


def _set_up(number: int) -> tuple[int, list[list[None]]]:
    """Frames below the first call, and objects that are kept.

    Where the chunks of the interpreter's stack end, and how near the next full collection of its
    collector is, decide over a tenth of what a compile takes, and are luck in any one program.
    Seven numbers in a row go once through either, in another order: 16 KiB of frames (136 of
    `_first_call` in CPython 3.11), and a quarter of the objects that are there.
    """
    gc.collect()
    quarter = len(gc.get_objects()) // 4
    survivors: list[list[None]] = [[] for _ in range(number * 3 % 7 * quarter // 7)]
    gc.collect(1)
    return number % 7 * 136 // 7, survivors


def _first_call(depth: int, function: Callable[[], object]) -> object:
    return _first_call(depth - 1, function) if depth else function()


def _here(function: Callable[[], object]) -> object:
    return function()


def main(name: str, shapes: str, backend: str, calls: str = CALLS) -> None:
    """Compile and call the model; see the module."""
    if SHAPE_EVENTS in os.environ:
        ShapeEnv.__init__.__kwdefaults__["should_record_events"] = True
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, inputs = MODELS[name]()
    if shapes == "dynamic":
        torch._dynamo.mark_dynamic(inputs, 1 if inputs.dtype == torch.long else 0)
    compiled = torch.compile(model, backend=backend)
    depth, _survivors = _set_up(int(os.environ.get(SETUP, "0")))
    if calls == "0":
        os._exit(0)
    with torch.set_grad_enabled(model.training):
        cpu, wall = _cpu(), time.perf_counter()
        result = _first_call(depth, lambda: _here(lambda: compiled(inputs)))
        if model.training:
            _tensors(result)[0].sum().backward()
        cpu, wall = _cpu() - cpu, time.perf_counter() - wall
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        per_call = []
        for _ in range(int(calls)):
            started = time.perf_counter()
            compiled(inputs)
            per_call.append(time.perf_counter() - started)
    # The recorder's thread may still be writing: what it uses until the exit is its own as well.
    before = _cpu()
    if "torchreel.recorder.session" in sys.modules:
        sys.modules["torchreel.recorder.session"].uninstall()
    print(
        json.dumps(
            {
                "cpu": cpu + _cpu() - before,
                "wall": wall,
                "peak": peak,
                "call": sorted(per_call)[len(per_call) // 2] * 1e6,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
