"""The document of a report says what the store does: of a real recording, with Inductor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import torchreel
from tests.report.conftest import compiles_of, document_of, fails, place_of
from torchreel.report.build import PAGE_BYTES
from torchreel.report.document import (
    CodeContent,
    CompileDetails,
    GraphContent,
    GraphNode,
    ReportDocument,
)
from torchreel.report.groups import last_text
from torchreel.report.packing import MOST_TEXT, encoded, unpacked


def details_of(document: ReportDocument, frame: str) -> CompileDetails:
    row = document.compiles[place_of(document, frame)]
    assert row.details is not None
    return part(document, row.details, CompileDetails)


def part(document: ReportDocument, place: int, kind: type[Any]) -> Any:
    return msgspec.json.decode(unpacked(document.packed[place]), type=kind)


def graph_of(document: ReportDocument, details: CompileDetails, stage: str) -> GraphContent:
    at = next(at for at in details.graphs if at.stage == stage)
    found: GraphContent = part(document, at.content, GraphContent)
    return found


def test_it_is_of_its_own_schema(document: ReportDocument) -> None:
    known = msgspec.json.decode(encoded(document), type=ReportDocument)
    assert known == document
    for row in known.compiles:
        assert row.details is not None
        details = part(known, row.details, CompileDetails)
        for at in details.graphs:
            assert len(part(known, at.content, GraphContent).nodes) == at.nodes
        for code in details.code:
            assert part(known, code.content, CodeContent).text


def test_every_compile_has_a_row(document: ReportDocument, recorded: Path) -> None:
    assert len(document.compiles) == compiles_of(recorded) > 4
    statuses = {row.status for row in document.compiles}
    assert {"ok", "failed", "restarted"} <= statuses
    for row in document.compiles:
        assert row.ms is not None
        assert row.ms > 0
        assert row.stack is not None
        chain = []
        place: int | None = row.stack
        while place is not None:
            chain.append(document.frames[place].function)
            place = document.frames[place].parent
        assert "recorded" in chain, "the line of this test's own module that called it"


def test_the_cache_is_in_the_row(document: ReportDocument) -> None:
    row = document.compiles[place_of(document, "forward")]
    assert {answer.split()[0] for answer in row.cache} == {"AOTAutogradCache", "FxGraphCache"}
    assert {answer.split()[1] for answer in row.cache} <= {"hit", "miss"}


def test_a_failure_that_came_twice_is_one(document: ReportDocument) -> None:
    (group,) = document.failures
    assert group.count == 2
    assert {document.compiles[place].frame for place in group.compiles} == {"fails"}
    assert group.stage.startswith("lowering")
    assert group.line is not None
    assert group.line.code == "return torch.scatter(y, 1, y, y) + 1"
    assert group.line.line == fails.__code__.co_firstlineno + 2
    assert group.next.startswith("torchreel show ")


def test_the_causes_are_told_apart(document: ReportDocument) -> None:
    kinds = {row.kind: row for row in document.causes}
    assert kinds.keys() == {"recompile", "graph break", "restart"}
    assert "size mismatch at index 0" in kinds["recompile"].what
    broken = kinds["graph break"]
    assert broken.line is not None
    assert broken.line.function == "breaks"


def test_a_recompile_is_one_however_many_entries_were_not_reused(tmp_path: Path) -> None:
    def times(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    torch._dynamo.reset()
    with torchreel.record(tmp_path / "run.db"):
        compiled = torch.compile(times, backend="eager", dynamic=False)
        for n in (2, 3, 4):
            compiled(torch.ones(2), n)
    document = document_of(tmp_path / "run.db")
    (cause,) = document.causes
    assert [row.misses for row in document.compiles] == [0, 1, 2]
    assert (cause.kind, cause.count, cause.compiles) == ("recompile", 2, [1, 2])


def test_a_restart_without_a_reason_has_its_type() -> None:
    assert last_text(("restart", "TensorifyScalarRestartAnalysis", "")) == (
        "TensorifyScalarRestartAnalysis"
    )
    assert last_text(("restart", "SpeculationRestartAnalysis", "a print")) == "a print"


def test_a_kernel_leads_to_the_line_of_the_program(document: ReportDocument) -> None:
    details = details_of(document, "forward")
    dynamo = graph_of(document, details, "dynamo")
    lowered = graph_of(document, details, "post_grad")
    code = next(code for code in details.code if code.partition == "forward")
    text = part(document, code.content, CodeContent).text.split("\n")
    assert len(code.kernels) >= 4
    nodes = {node.name: node for node in lowered.nodes}
    names = {node.name for node in dynamo.nodes}
    for kernel in code.kernels:
        assert kernel.at is not None
        assert kernel.name in text[kernel.at - 1]
        if kernel.backend == "cpp":
            assert kernel.source is not None
            assert text[kernel.source[0] - 1].startswith(f"{kernel.name} = ")
            assert text[kernel.source[1] - 1].startswith("''")
        own = [nodes[name] for name in kernel.origins]
        assert {origin for node in own for origin in node.origins} & names
        assert lines(lowered, own), kernel
    sigmoid = next(kernel for kernel in code.kernels if "sigmoid" in kernel.name)
    own = [nodes[name] for name in sigmoid.origins]
    assert lines(lowered, own) == {"hidden = torch.sigmoid(self.up(x)) * 2"}


def lines(graph: GraphContent, nodes: list[GraphNode]) -> set[str]:
    return {graph.lines[node.line].code for node in nodes if node.line is not None}


def test_a_node_of_the_backward_leads_to_dynamo(document: ReportDocument) -> None:
    details = details_of(document, "forward")
    at = next(a for a in details.graphs if (a.stage, a.partition) == ("backward", "backward"))
    backward = part(document, at.content, GraphContent)
    names = {node.name for node in graph_of(document, details, "dynamo").nodes}
    calls = [node for node in backward.nodes if node.op == "call_function"]
    led = [node for node in calls if set(node.origins) & names]
    assert len(led) / len(calls) > 0.9


def test_edges_are_those_of_the_arguments(document: ReportDocument) -> None:
    graph = graph_of(document, details_of(document, "breaks"), "dynamo")
    by_op = {node.op: node for node in graph.nodes}
    (used,) = by_op["call_function"].inputs
    assert graph.nodes[used].op == "placeholder"
    assert graph.nodes[by_op["output"].inputs[0]].op == "call_function"


def test_guards_symbols_and_stories_are_there(document: ReportDocument) -> None:
    again = [
        part(document, row.details or 0, CompileDetails) for row in document.compiles if row.misses
    ]
    (second,) = again
    (story,) = second.recompiles
    assert "size mismatch at index 0. expected 3, actual 5" in story.headline
    (symbol,) = second.symbols
    assert symbol.sources == ["L['x'].size()[0]"]
    assert symbol.steps[0].event.startswith("#")
    types = {guard.type for guard in second.guards}
    assert {"TENSOR_MATCH", "ShapeEnv"} <= types
    assert any(guard.line for guard in second.guards)
    broken = details_of(document, "breaks")
    assert broken.source.lstrip().startswith("def breaks(")
    assert broken.stages[0].stage == "dynamo"


def second_of(document: ReportDocument) -> CompileDetails:
    """The recompile with another size."""
    row = next(row for row in document.compiles if row.misses)
    return part(document, row.details or 0, CompileDetails)


def test_the_table_of_symbols_is_there_after_each_event(document: ReportDocument) -> None:
    details = second_of(document)
    created, *later = details.moments
    assert "s77" in created.text
    assert [state.name for state in created.changed] == ["s77"]
    assert created.changed[0].hint == "5"
    positions = [int(moment.event.rpartition("@")[2]) for moment in details.moments]
    assert positions == sorted(set(positions))
    assert later[-1].guards == sum(guard.type == "ShapeEnv" for guard in details.guards) > 0
    narrowed = [moment for moment in later if any(state.range for state in moment.changed)]
    assert all(moment.changed or moment.guards for moment in later)
    assert narrowed or created.changed[0].range


def test_a_lookup_in_a_cache_says_what_parts_it_from_the_one_before(
    document: ReportDocument,
) -> None:
    first = details_of(document, "forward")
    assert {key.outcome for key in first.keys} <= {"miss", "hit"}
    assert all(key.nearest == "" for key in first.keys)
    again = second_of(document)
    assert {key.cache for key in again.keys} == {"AOTAutogradCache", "FxGraphCache"}
    for key in again.keys:
        assert key.nearest.rpartition("#")[2].startswith("1/0/0@")
        assert key.factors
        assert key.verdict.startswith("another key")


def test_equal_graphs_are_kept_once(document: ReportDocument) -> None:
    assert len(set(document.packed)) == len(document.packed)
    failed = [row for row in document.compiles if row.status == "failed"]
    first, second = (part(document, row.details or 0, CompileDetails) for row in failed)
    assert [at.content for at in first.graphs] == [at.content for at in second.graphs]


def test_what_has_no_room_is_left_out_and_said(recorded: Path, document: ReportDocument) -> None:
    rows = len(encoded(msgspec.structs.replace(document, packed=[])))
    room = sum(map(len, document.packed)) // 6  # most of it are records, which are left out first
    small = document_of(recorded, PAGE_BYTES + rows + room)
    left_out = [row for row in small.compiles if row.details is None]
    assert 0 < len(left_out) < len(small.compiles)
    assert [row.details for row in small.compiles if row.status == "failed"].count(None) == 0
    (note,) = small.notes
    assert f"The details of {len(left_out)} of {len(small.compiles)} compiles" in note
    assert 0 < sum(map(len, small.packed)) <= room
    for row in small.compiles:
        if row.details is not None:
            details = part(small, row.details, CompileDetails)
            assert all(part(small, at.content, GraphContent) for at in details.graphs)
    assert document.notes == []


def test_a_text_that_nobody_reads_to_its_end_is_cut(document: ReportDocument) -> None:
    """A recording whose status is 100 MB long took all memory."""
    row = msgspec.structs.replace(document.recordings[0], status="x" * (MOST_TEXT + 1234))
    text = json.loads(encoded(row))["status"]
    assert text == "x" * MOST_TEXT + " ... and 1,234 more characters"


@pytest.mark.parametrize("field", ["unknown", "format"])
def test_what_is_no_document_is_refused(document: ReportDocument, field: str) -> None:
    value = {**json.loads(encoded(document)), field: "x"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(value), type=ReportDocument)
