"""One partition in the place of a whole graph: the ATen graph that Inductor gets of a case.

It is smaller than the case where an operator of the program is several in ATen and the failure
needs one of them. Lives here: the case that is made of that graph. Not here: seeing the graph in a
child (`oracle.child.stages`), the reduction of it (`search`).
"""

from __future__ import annotations

from dataclasses import replace

from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.minifier.cases.case import Case, Harness
from torchreel.minifier.cases.side_effects import base_name
from torchreel.store.documents.jsontypes import Json


def part_of(case: Case, document: Json) -> Case | None:
    """Return the case of an ATen graph that Inductor got of a case; None where that is no document.

    Config and ambient state are those of the case, of which a reduction has left what matters.
    """
    if document is None:
        return None
    doc = CheckpointDoc.from_json(document)
    doc.check()
    doc = replace(doc, config=case.checkpoint.config, ambient=case.checkpoint.ambient)
    harness: Harness = "compile" if case.harness == "train" else case.harness
    part = Case.from_checkpoint(doc, harness, imports=case.imports)
    return replace(part, seed=case.seed, eager=case.eager, comparator=case.comparator)


def is_worth(part: Case, whole: Case) -> bool:
    """Return True if reducing a part may lead further than the whole, which is at its minimum.

    It can't if each call of the whole became one call of the same name: none of these can be
    removed either. Two kinds of parts are worth a try in any case. The bodies of higher-order
    operators follow other rules (a body may return an operand), and the calls of a backward are not
    in the whole.
    """
    if part.graph.modules or part.checkpoint.partition == "backward":
        return True
    return _names(part) != _names(whole)


def _names(case: Case) -> list[str]:
    """Return the names of the calls of a graph: `relu` of any spelling."""
    return sorted(base_name(node).strip("_") for node in case.graph.nodes if node.is_call)
