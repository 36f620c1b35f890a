"""The base classes of passes. Read this before writing one.

A pass is a small pure function from a case to *edits*: independent proposals, each an immutable
value, in the order in which they should be tried. `apply` makes the case in which a number of them
are carried out together. That is all: a pass does not know whether its proposals are any good. The
search applies runs of neighbouring edits (four at a time, then twice as many, then halving), skips
in silence a candidate that the order (`minifier.cases.order.sort_key`) does not call simpler, and
asks the oracle about the others.

The contract, which `tests/minifier/passes/test_passes.py` checks for every pass of the list:

- the same case gives the same edits, in the same order: no randomness, no time, no set order;
- a pass only proposes: it changes nothing, runs nothing and asks nobody;
- `apply` never gives a case equal to the one it was given: no change is None;
- edits that no longer make sense after others are skipped, and `apply` gives None if all are;
- a candidate may be invalid as a program (the oracle finds out, cheaply), never malformed as a
  graph: uses come after definitions, and there is one description per input.

To add one: put it in a file named after the edit, and its name in a tier of `passes.PHASES`. The
test wants an edit that makes one of the cases of `tests/minifier/generated.py` simpler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.graph_edits import GraphEditor

Path = tuple[str, ...]
"""The names of the nested graphs from the outer graph inwards; () is the outer graph."""


class Edit(ABC):  # noqa: B024
    """A proposal: a frozen dataclass, meant for the pass that made it."""


class GraphEdit(Edit):
    """A proposal about the nodes of one graph; a frozen dataclass."""

    path: Path

    @abstractmethod
    def apply_to(self, editor: GraphEditor) -> None:
        """Apply the edit to an editor of that graph; do nothing if it makes no sense any more."""


class CaseEdit(Edit):
    """A proposal about anything else; a frozen dataclass."""

    @abstractmethod
    def on(self, case: Case) -> Case | None:
        """Return the edited case; None where the edit makes no sense."""


C = TypeVar("C")


class Pass(ABC, Generic[C]):
    """Proposes edits of cases of one kind, and carries them out."""

    name: str
    only_prefix = False
    """True if only runs that start with the first edit are tried."""
    alternatives = False
    """True if the edits are alternatives: no two are tried at once."""
    together = False
    """True if all edits at once are tried first: they seldom matter."""
    gentle = False
    """True if an edit takes away calls and keeps what they were computed from in use.

    A call that such an edit can't take away hardly any other edit can.
    """

    @abstractmethod
    def edits(self, case: C) -> Sequence[Edit]:
        """Return the proposals for a case."""

    @abstractmethod
    def apply(self, case: C, edits: Sequence[Edit]) -> C | None:
        """Return the case with these edits carried out; None when nothing would change."""


class GraphPass(Pass[Case]):
    """Applies graph edits: one editor for each graph, built once."""

    def apply(self, case: Case, edits: Sequence[Edit]) -> Case | None:
        """Return the case with these edits carried out; None when nothing would change."""
        mine = [edit for edit in edits if isinstance(edit, GraphEdit)]
        result: Case | None = case
        for path in sorted({edit.path for edit in mine}, key=lambda path: (-len(path), path)):
            here = [edit for edit in mine if edit.path == path]
            result = _apply_at(result, path, here) if result is not None else None
        return _changed(case, result)


class CasePass(Pass[Case]):
    """Applies case edits one after the other."""

    def apply(self, case: Case, edits: Sequence[Edit]) -> Case | None:
        """Return the case with these edits carried out; None when nothing would change."""
        result = case
        for edit in edits:
            if isinstance(edit, CaseEdit):
                result = edit.on(result) or result
        return _changed(case, result)


def graph_at(case: Case, path: Path) -> GraphDoc | None:
    """Return the nested graph at a path; None where there is none."""
    graph: GraphDoc | None = case.graph
    for name in path:
        graph = graph.modules.get(name) if graph is not None else None
    return graph


def paths(graph: GraphDoc, prefix: Path = ()) -> list[Path]:
    """Return the paths of a graph and of all that are nested in it, the outer first."""
    found = [prefix]
    for name in sorted(graph.modules):
        found += paths(graph.modules[name], (*prefix, name))
    return found


def _apply_at(case: Case, path: Path, edits: Sequence[GraphEdit]) -> Case | None:
    graph = graph_at(case, path)
    if graph is None:
        return case
    editor = GraphEditor(graph, () if path else case.checkpoint.inputs)
    for edit in edits:
        edit.apply_to(editor)
    if editor.is_untouched:
        return case
    made = editor.finish()
    if made is None:
        return None
    new, inputs = made
    return case.with_graph(new, inputs) if not path else with_graph_at(case, path, new)


def with_graph_at(case: Case, path: Path, graph: GraphDoc) -> Case:
    """Return the case with the graph at a path replaced; its inputs stay."""
    return case.with_graph(_replaced(case.graph, path, graph))


def node_at(case: Case, path: Path, name: str) -> NodeDoc | None:
    """Return the node of that name in the graph at a path; None where there is none."""
    graph = graph_at(case, path)
    return graph.by_name.get(name) if graph is not None else None


def with_node_at(case: Case, path: Path, node: NodeDoc) -> Case:
    """Return the case with the node of the same name in the graph at a path replaced."""
    graph = graph_at(case, path)
    assert isinstance(graph, GraphDoc), "the node was found in it"
    nodes = tuple(node if other.name == node.name else other for other in graph.nodes)
    return with_graph_at(case, path, replace(graph, nodes=nodes))


def _replaced(graph: GraphDoc, path: Path, new: GraphDoc) -> GraphDoc:
    """Return the graph with the nested graph at a path replaced."""
    if not path:
        return new
    inner = _replaced(graph.modules[path[0]], path[1:], new)
    return replace(graph, modules={**graph.modules, path[0]: inner})


def _changed(before: Case, after: Case | None) -> Case | None:
    if after is None or after is before:
        return None
    return after if after.digest != before.digest else None
