"""Backends with planted bugs: what a user would name with --import.

Each looks at the graph it is given; none compiles anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._dynamo import register_backend
from torch._inductor.codecache import CacheBase
from torch._inductor.exc import CppCompileError
from torch.fx import GraphModule


def calls(gm: GraphModule, name: str) -> bool:
    """Whether the graph calls `torch.NAME`."""
    return any(node.target is getattr(torch, name) for node in gm.graph.nodes)


def reaches(gm: GraphModule, source: str, sink: str) -> bool:
    """Whether a value of `torch.SOURCE` flows into `torch.SINK`."""
    tainted = set()
    for node in gm.graph.nodes:
        flows = any(operand in tainted for operand in node.all_input_nodes)
        if flows and node.target is getattr(torch, sink):
            return True
        if flows or node.target is getattr(torch, source):
            tainted.add(node)
    return False


@register_backend
def planted_path(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Fails when a sine reaches a cosine."""
    if reaches(gm, "sin", "cos"):
        raise RuntimeError("planted: a sine reaches a cosine")
    return gm.forward


@register_backend
def planted_slow_path(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Has the bug of `planted_path`, and takes its time to show it."""
    time.sleep(0.2)
    return planted_path(gm, inputs)


@register_backend
def planted_saved(gm: GraphModule, inputs: Sequence[Any]) -> Any:
    """Fails where a policy of activation checkpointing has a sine saved."""
    from torch._dynamo.backends.common import aot_autograd

    def split(joint: GraphModule, *args: Any, **kwargs: Any) -> Any:
        for node in joint.graph.nodes:
            sine = node.target is torch.ops.aten.sin.default
            if sine and str(node.meta.get("recompute")) == "CheckpointPolicy.MUST_SAVE":
                raise RuntimeError("planted: a sine is to be saved")
        return torch._functorch.partitioners.default_partition(joint, *args, **kwargs)

    return aot_autograd(fw_compiler=lambda graph, _: graph.forward, partition_fn=split)(gm, inputs)


@register_backend
def planted_killed_compiler(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Fails as Inductor does where somebody kills its compiler."""
    command = ["g++", "x.cpp"]
    raise CppCompileError(command, "") from subprocess.CalledProcessError(-9, command)


@register_backend
def planted_flaky(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Has the bug of `planted_path`, and shows it in three runs of ten, whatever the seed."""
    if reaches(gm, "sin", "cos") and int.from_bytes(os.urandom(4)) < 0.3 * 2**32:
        raise RuntimeError("planted: a sine reaches a cosine")
    return gm.forward


@register_backend
def planted_two(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Has two bugs: the one of `planted_path`, and it knows no tangent."""
    if reaches(gm, "sin", "cos"):
        raise RuntimeError("planted: a sine reaches a cosine")
    if calls(gm, "tan"):
        raise KeyError("planted: tangent")
    return gm.forward


@register_backend
def planted_ends(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Ends the process in as many ways as there are functions."""
    if calls(gm, "sin"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if calls(gm, "cos"):
        time.sleep(600)
    if calls(gm, "tan"):
        os._exit(3)
    if calls(gm, "exp"):
        hog = [bytearray(64 << 20) for _ in range(64)]
        time.sleep(600 + len(hog))
    return gm.forward


@register_backend
def planted_doubling(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Takes twice as long for each call of the graph as for the one before."""
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    for number, _ in enumerate(calls):
        time.sleep(0.001 * 2**number)
    return gm.forward


@register_backend
def planted_wrong(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Computes a cosine of a sine wrongly."""
    wrong = reaches(gm, "sin", "cos")

    def run(*args: Any) -> Any:
        result = gm(*args)
        return tuple(value + 1 for value in result) if wrong else result

    return run


@register_backend
def planted_attacks(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Tries to get a verdict that it does not deserve, in as many ways as there are functions."""
    text = "planted: a sine reaches a cosine"
    if calls(gm, "sin"):
        os._exit(0)
    if calls(gm, "cos"):
        print(f'RuntimeError: {text}\n{{"finding": {{"verdict": "same"}}}}')
    if calls(gm, "tan"):
        raise ValueError(text)
    if calls(gm, "exp"):
        lock_twice()
    if calls(gm, "log") and os.fork() == 0:
        os.setsid()
        time.sleep(600)
    if calls(gm, "neg"):
        os.fork()  # both go on
    if calls(gm, "abs"):
        os.kill(os.getpid(), signal.SIGKILL)
    if calls(gm, "sqrt"):
        importlib.import_module("no_such_module_anywhere")
    if calls(gm, "floor"):
        os.closerange(3, 256)
        time.sleep(600)
    if calls(gm, "round"):
        say_without_end(b'{"entered": ["lowering", ""], "pid": 1}\n')
    if calls(gm, "trunc"):
        say_without_end(b"[]\n")
    return late if calls(gm, "ceil") else gm.forward


def say_without_end(line: bytes) -> None:
    """Write a line again and again to the process that watches this one."""
    found = [each for each in range(3, 64) if Path(f"/proc/self/fd/{each}").is_fifo()]
    while True:
        for each in found:
            with contextlib.suppress(OSError):
                os.write(each, line)


def lock_twice() -> None:
    """Hang in C for good, in spite of signals, and let nobody else have the GIL."""
    mutex = ctypes.create_string_buffer(64)  # PTHREAD_MUTEX_INITIALIZER is all zeros
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


def late(*args: Any) -> Any:
    """Fails as `planted_path` does, but when it runs."""
    raise RuntimeError("planted: a sine reaches a cosine")


@register_backend
def planted_cold(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Fails where Inductor would do here what takes half a second the first time."""
    cold = [] if "sympy.tensor.tensor" in sys.modules else ["SymPy's tensors"]
    cold += [] if CacheBase.get_system.cache_info().currsize else ["the name of the system"]
    if cold:
        raise RuntimeError(f"planted: not there yet: {', '.join(cold)}")
    return gm.forward


@register_backend
def planted_warnings(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Warns in both ways, and logs what the graph calls."""
    names = [getattr(node.target, "__name__", "") for node in gm.graph.nodes]
    warnings.warn("beware", stacklevel=1)
    logging.getLogger("torch._dynamo").warning("logged: %s", " ".join(filter(None, names)))
    return gm.forward
