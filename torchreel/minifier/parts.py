"""One partition in the place of a whole graph: the ATen graph that Inductor gets of a case.

It is smaller than the case where an operator of the program is several in ATen and the failure
needs one of them. Lives here: how that graph is seen in the worker's child (`parts_seen`, called by
`harness`) and asked for (`lowered`, called by `minify`). Not here: the reduction of it (`search`).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from torchreel.minifier.case import Case, Harness
from torchreel.minifier.oracle import WorkerOracle
from torchreel.recorder.attach import resolve
from torchreel.recorder.probes import inductor
from torchreel.store.portable.checkpoints import CheckpointDoc, aot_checkpoint


@contextmanager
def parts_seen(see: Callable[[CheckpointDoc], None]) -> Iterator[None]:
    """Give each ATen graph to `see` as it enters Inductor, for the length of a `with`."""
    importlib.import_module(inductor.INNER.module)
    owner, name = resolve(inductor.INNER)
    original = vars(owner)[name]

    @functools.wraps(original)
    def wrapper(gm: Any, example_inputs: Sequence[object], *args: Any, **kwargs: Any) -> Any:
        see(aot_checkpoint(gm, example_inputs, kwargs))
        return original(gm, example_inputs, *args, **kwargs)

    with mock.patch.object(owner, name, wrapper):
        yield


def lowered(oracle: WorkerOracle, case: Case) -> Case | None:
    """A case of the last graph that Inductor gets of a case; None where it gets none.

    That is the one in which a compile fails. Config and ambient state are those of the case, of
    which a reduction has left what matters.
    """
    found = oracle.part_of(case)
    if found is None:
        return None
    doc = CheckpointDoc.from_json(found)
    doc = replace(doc, config=case.checkpoint.config, ambient=case.checkpoint.ambient)
    harness: Harness = "compile" if case.harness == "train" else case.harness
    part = Case.from_checkpoint(doc, harness, imports=case.imports)
    return replace(part, seed=case.seed, eager=case.eager, comparator=case.comparator)


def is_worth(part: Case, whole: Case) -> bool:
    """Whether a part may lead to less than the whole, of which no node can be left out.

    Not where each call of the whole became one call; in the bodies of higher-order operators other
    rules hold (a body may return an operand), so that even then something may go.
    """
    return part.total_call_nodes != whole.total_call_nodes or bool(part.graph.modules)
