"""A whole case, built by allow-list."""

from __future__ import annotations

from torchreel.errors import UnsupportedError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs import OPERATORS
from torchreel.minifier.cases.case import BACKENDS, Case
from torchreel.replay.accuracy import comparators
from torchreel.sharing.constructed import settings
from torchreel.sharing.constructed.descriptions import Descriptions
from torchreel.sharing.constructed.graphs import Graphs
from torchreel.sharing.constructed.operators import Operators
from torchreel.sharing.constructed.scalars import Symbols
from torchreel.sharing.pseudonyms import Pseudonyms

_ENTRIES = ("graph", "aot")
_PARTITIONS = ("", "forward", "backward", "inference")


def construct(case: Case, pseudonyms: Pseudonyms) -> Case:
    """Return a case that does the same, made of what may leave.

    Raises `UnsupportedError` where a part of it has no form that may.
    """
    doc = case.checkpoint
    _refuse(case)
    symbols = Symbols()
    descriptions = Descriptions(symbols, pseudonyms)
    operators = Operators(descriptions)
    graph = Graphs(descriptions, operators).of(doc.graph)
    extra = settings.extra(doc.extra, case.backend, symbols)
    if OPERATORS in doc.extra:
        extra[OPERATORS] = operators.table(doc.extra[OPERATORS])
    made = CheckpointDoc(
        doc.entry,
        doc.partition,
        graph,
        tuple(descriptions.of(value) for value in doc.inputs),
        settings.shape_env(doc.shape_env, symbols, pseudonyms),
        tuple(settings.config_entries(doc.config)),
        settings.ambient_state(doc.ambient),
        extra,
    )
    return Case(
        made, case.harness, case.backend, (), 0, max(1, min(case.repeats, 100)), case.eager,
        case.comparator,
    )  # fmt: skip


def _refuse(case: Case) -> None:
    """Raise `UnsupportedError` for a case that is more than a graph and its settings."""
    doc = case.checkpoint
    reason = ""
    if doc.entry not in _ENTRIES or doc.partition not in _PARTITIONS:
        reason = f"its checkpoint is of the kind {doc.entry!a:.20}"
    elif case.is_exact:
        reason = "it fails only with all that the recorded trace had learnt"
    elif case.backend not in BACKENDS:
        reason = "its backend is the program's own, which is code"
    elif comparators.comparator(case.comparator).is_users:
        reason = "a function of the program's judges it"
    if reason:
        raise UnsupportedError(
            f"The failure can't be shared: {reason}. Reduce it first ('torchreel minify'), or "
            "share the script that it ends in, once you have read it."
        )
