"""The process of one replay: restores a checkpoint and runs its stage under the recorder.

Lives here: `python -m torchreel.replay.child.checkpoint_child`, which reads one request (JSON) from
standard input, or from the file that is named: then it has the terminal.  Not here: starting it and
what becomes of it (`launch`).  A process of its own, because a replay can abort (fake CUDA tensors
on a CPU build), crash (that may be the recorded failure) or hang.

It reports through a file: what it could not restore, or why it refuses.  An exception of the
replayed stage is no report: the recorder has it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from torchreel import sandbox
from torchreel.errors import TorchreelError, UsageError
from torchreel.replay.child.checkpoint_request import Report, Request, parse
from torchreel.sandbox.processes import exit_quickly, follow_parent
from torchreel.store.failures.raised import lineage

__all__ = ["main", "parse"]


def main() -> None:
    """Carry out the request on standard input, or in the file that is named."""
    follow_parent()
    text = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else sys.stdin.read()
    request = Request(**json.loads(text))
    report = Report()
    try:
        _confine(request, report)
        from torchreel.replay.child.checkpoint_replay import replay  # which reads the store

        replay(request, report)
        report.finished = True
    except UsageError as error:
        report.misused = str(error)
    except TorchreelError as error:
        report.refused = str(error)
    except OSError as error:
        report.refused = sandbox.denied(lineage(error))
        if not report.refused:
            raise
    finally:
        report.write(request.report)


def _confine(request: Request, report: Report) -> None:
    """Give up what is not needed, before anything of the store is read."""
    for name in request.imports:  # the user's own choice; they may write where they like
        importlib.import_module(name)
    if request.folder:
        folder = Path(request.folder)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
        programs = tuple(map(Path, request.programs))
        lacking = sandbox.confine(sandbox.Confinement(folder, programs))
        report.notes += [f"sandbox: {text}" for text in lacking]


if __name__ == "__main__":
    main()
    exit_quickly()
