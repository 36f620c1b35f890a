"""Joins what the policies of activation checkpointing answered into the regions of a checkpoint.

A policy is code of the program, called for each operator while AOTAutograd traces a region: its
answers are in the event log (`aot.save_policy`), behind the checkpoint. Lives here: which of them
belong to which region. Not here: the policy that is made of them (`formats.graphs.codec`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torchreel.events.aot import SavePolicy
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs import SAVE_POLICY
from torchreel.formats.graphs.document import GraphDoc
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile

_REGION = "hop:tag_activation_checkpoint"
_Answers = Mapping[str, list[str]]


def with_policies(store: Store, compile: Compile, doc: CheckpointDoc) -> CheckpointDoc:
    """Return the checkpoint with the answers that each policy in it gave."""
    if not any(SAVE_POLICY in graph.extra for graph in doc.graph.graphs()):
        return doc
    return replace(doc, graph=_answered(doc.graph, "", _answers(store, compile)))


def _answers(store: Store, compile: Compile) -> dict[str, _Answers]:
    """Return, by region, the answers of the last one of the tracings that saw most operators.

    A region is traced several times, and the last time may have ended half-way, in a failure.
    """
    tracings: dict[str, dict[int, list[tuple[str, str]]]] = {}
    for event in queries.events(store, compile, SavePolicy.kind):
        assert isinstance(event.fields, SavePolicy)
        runs = tracings.setdefault(event.fields.region, {})
        runs.setdefault(event.fields.run, []).append((event.name, event.fields.answer))
    found: dict[str, _Answers] = {}
    for region, runs in tracings.items():
        by_operator: dict[str, list[str]] = {}
        for operator, answer in max(reversed(runs.values()), key=len):
            by_operator.setdefault(operator, []).append(answer)
        found[region] = by_operator
    return found


def _answered(graph: GraphDoc, within: str, answers: Mapping[str, _Answers]) -> GraphDoc:
    """Return a graph whose regions, and those nested in them, hold their answers."""
    regions = {_body(graph, node.args): node.name for node in graph.nodes if node.target == _REGION}
    modules = {}
    for name, inner in graph.modules.items():
        path = ".".join(filter(None, (within, regions.get(name, ""))))
        made = _answered(inner, path, answers)
        known: Json = dict(answers.get(path, {}))
        if SAVE_POLICY in inner.extra:
            made = replace(made, extra={**made.extra, SAVE_POLICY: known})
        modules[name] = made
    return replace(graph, modules=modules)


def _body(graph: GraphDoc, args: Json) -> str:
    """Return the name of the body that a region's call is given."""
    first = args[0] if isinstance(args, list) and args else None
    node = graph.by_name.get(str(first.get("n"))) if isinstance(first, Mapping) else None
    return node.target if node is not None else ""
