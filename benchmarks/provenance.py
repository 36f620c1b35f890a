"""`make provenance`: the share of Inductor's kernels that a report leads to a line of the program.

    python -m benchmarks.provenance [gpt resnet lstm training dynamic]

Five models, each recorded by `torchreel record` with all caches off. A kernel counts where the
report's document, from its origins by way of the nodes of the graphs, names a line in the file of
the model itself; a line in torch does not count. Kernels without origins count as not led. Takes
some three minutes; exits with 1 where a model is below 90 %.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from torchreel.recorder.launch import run_recorded
from torchreel.report.build import compile_file
from torchreel.report.document import CompileFile, GraphContent, KernelCall
from torchreel.report.listing import list_compiles
from torchreel.report.packing import unpacked
from torchreel.store import Store, parse

PROGRAM = Path(__file__).with_name("provenance_programs.py")
MODELS = ("gpt", "resnet", "lstm", "training", "dynamic")
LEAST = 0.9


def main(wanted: Sequence[str]) -> int:
    """Measure the models that are named, or all; the exit status."""
    os.environ.update(TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0")
    bad = 0
    with tempfile.TemporaryDirectory(prefix="torchreel-provenance-") as folder:
        for name in wanted or MODELS:
            path = Path(folder) / f"{name}.db"
            status = run_recorded([sys.executable, str(PROGRAM), name], path)
            assert status == 0, f"{name}: the program itself failed"
            kernels = list(_kernels(path))
            led = sum(is_led for _, is_led in kernels)
            print(f"{name:10} {led:4} of {len(kernels):4} kernels  {led / len(kernels):7.1%}")
            for kernel in sorted({kernel for kernel, is_led in kernels if not is_led}):
                print(f"           not led: {kernel}", flush=True)
            bad += led / len(kernels) < LEAST
    return min(bad, 1)


def _kernels(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each call of a kernel in the generated code, and True if it leads to the program."""
    with Store.open(path) as store:
        listing = list_compiles(store, parse(str(path)), lambda row: "")
        for number in range(len(listing.compiles)):
            yield from _of_compile(compile_file(store, listing, number, lambda row: ""))


def _of_compile(found: CompileFile) -> Iterator[tuple[str, bool]]:
    graphs = [
        (at, msgspec.json.decode(unpacked(found.packed[at.content]), type=GraphContent))
        for at in found.details.graphs
    ]
    dynamo = next((graph for at, graph in graphs if at.stage == "dynamo"), None)
    for code in found.details.code:
        same = [(at, graph) for at, graph in graphs if at.partition == code.partition]
        lowered = [graph for at, graph in same if at.stage == "post_grad"] or [g for _, g in same]
        for kernel in code.kernels:
            is_led = bool(lowered) and _is_led(kernel, lowered[-1], dynamo)
            yield kernel.name, is_led


def _is_led(kernel: KernelCall, lowered: GraphContent, dynamo: GraphContent | None) -> bool:
    """As the page follows a click: the node's own lines, else those of the Dynamo nodes."""
    nodes = {node.name: node for node in lowered.nodes}
    sources = {node.name: node.line for node in dynamo.nodes} if dynamo else {}
    for node in (nodes[name] for name in kernel.origins if name in nodes):
        if node.line is not None:
            if _is_own(lowered, node.line):
                return True
        elif dynamo and any(_is_own(dynamo, sources.get(name)) for name in node.origins):
            return True
    return False


def _is_own(graph: GraphContent, line: int | None) -> bool:
    while line is not None:
        if Path(graph.lines[line].file).name == PROGRAM.name:
            return True
        line = graph.lines[line].by
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
