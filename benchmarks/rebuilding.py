"""Is the ShapeEnv that is rebuilt from the event log the recorded one, for whole models as well?

    python -m benchmarks.rebuilding [PROGRAM ...] [--backend aot_eager]

The programs of `completeness` (all by default), with dynamic shapes and Inductor.  At the end, at
each checkpoint, and whenever the recorder looked at a ShapeEnv, the one rebuilt from the events up
to there has to be equal by torch's `ShapeEnv.check_equal`, or field for field.  What a program
ends with does not matter: up to there the event log is whole.  Exits with 1 when one differs.
"""

import sys
import tempfile
from pathlib import Path

import torch
import torch._functorch.config
import torch._inductor.config
from torch.fx.experimental.recording import NotEqualError

from benchmarks.completeness import chosen
from tests.recorder.trace_programs import PROGRAMS
from tests.replay.test_shapes import assert_rebuilt, record_program
from torchreel.errors import TorchreelError


def main(arguments: list[str]) -> int:
    """Run the chosen programs; the exit status."""
    programs, backend = chosen(arguments)
    bad = 0
    for name in programs:
        print(f"{name}, {backend}: ", end="", flush=True)
        try:
            print(_one(name, backend), flush=True)
        except (AssertionError, NotEqualError, TorchreelError) as error:
            bad += 1
            print(f"differs: {error!s:.300}", flush=True)
    return min(bad, 1)


def _one(name: str, backend: str) -> str:
    ended = "well"

    def program() -> None:
        nonlocal ended
        # What comes from a cache has no ATen checkpoint.
        with (
            torch._inductor.config.patch(fx_graph_cache=False, compile_threads=1),
            torch._functorch.config.patch(enable_autograd_cache=False),
        ):
            try:
                PROGRAMS[name](lambda f: torch.compile(f, backend=backend, dynamic=True))
            except Exception as error:  # noqa: BLE001  (Inductor has no lowering of some operators)
                ended = type(error).__name__

    torch.manual_seed(0)
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory(prefix="torchreel-rebuilding-") as folder:
        recorded = record_program(Path(folder, "shapes.db"), program)
    assert_rebuilt(recorded)
    return (
        f"{len(recorded.envs)} ShapeEnvs, {len(recorded.checkpoints)} checkpoints and "
        f"{len(recorded.looks)} looks equal; ended {ended}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
