"""The planted fault that PLANTED names, put into Inductor: for `benchmarks.minifier`.

PLANTED is `STAGE:OP[>OP...][!]`: a graph in which a value of the first operator flows into the
second and so on is refused with an error, or, with `!`, ends the process with SIGSEGV.  STAGE is
`pre_grad` (the graph that Dynamo hands to the backend) or `lowering` (ATen, after decomposition).

A user's plugin would be imported by name; torch's own minifier imports nothing in the processes
that it starts, so `sitecustomize` beside this file sees to it there.  Both together do no harm.
"""

import functools
import os
import signal

MESSAGE = "planted fault: {}"


def named(target: object) -> str:
    """The name of what a node calls, without overload and module."""
    packet = getattr(target, "_overloadpacket", target)
    return str(getattr(packet, "__name__", packet)).rpartition(".")[2]


def flows(graph: object, path: list[str]) -> bool:
    """Whether a value goes through calls of these names, one after the other, in any distance."""
    reached: dict[object, int] = {}
    for node in graph.nodes:  # type: ignore[attr-defined]
        so_far = max((reached[operand] for operand in node.all_input_nodes), default=0)
        calls = node.op in ("call_function", "call_method")
        reached[node] = so_far + (
            calls and so_far < len(path) and named(node.target) == path[so_far]
        )
    return len(path) in reached.values()


def refuse(graph: object, path: list[str], crash: bool) -> None:
    """Fail if the graph shows the fault."""
    if flows(graph, path):
        if crash:
            os.kill(os.getpid(), signal.SIGSEGV)
        raise RuntimeError(MESSAGE.format(" > ".join(path)))


def plant() -> None:
    """Put the fault in, once."""
    stage, _, rest = os.environ.get("PLANTED", "").partition(":")
    path, crash = rest.removesuffix("!").split(">"), rest.endswith("!")
    if stage == "lowering":
        from torch._inductor.graph import GraphLowering

        owner, name = GraphLowering, "run"
    elif stage == "pre_grad":
        from torch._inductor import compile_fx as owner  # type: ignore[no-redef]

        name = "compile_fx"
    else:
        return
    original = getattr(owner, name)
    if hasattr(original, "planted"):
        return

    @functools.wraps(original)
    def planted(first: object, *args: object, **kwargs: object) -> object:
        refuse(getattr(first, "module", first).graph, path, crash)
        return original(first, *args, **kwargs)

    planted.planted = True  # type: ignore[attr-defined]
    setattr(owner, name, planted)


plant()
