"""Runs a program as `python PROGRAM` does, and prints how many tensors are left of it.

    python benchmarks/alive.py PROGRAM.py [ARGUMENTS ...]

By class of tensor, after a collection, and again after a reset of Dynamo; before them, how many
frames Dynamo was shown.  This is what `fidelity` runs, with and without a recorder: one that keeps
a tensor alive, or whose own frames Dynamo sees, changes the numbers.
"""

import gc
import runpy
import sys
from collections import Counter
from pathlib import Path


def main() -> None:
    """Run it; what it raises, or exits with, goes on from here."""
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        _tell()


def _tell() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        print("frames:", dict(sys.modules["torch._dynamo.utils"].counters["frames"]))
        print("tensors alive:", _alive(torch.Tensor))
        torch.compiler.reset()
        print("after a reset:", _alive(torch.Tensor), flush=True)


def _alive(tensor: type) -> str:
    gc.collect()
    found = Counter(type(o).__name__ for o in gc.get_objects() if issubclass(type(o), tensor))
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items()))


if __name__ == "__main__":
    main()
