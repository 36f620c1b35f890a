"""The user's line of a failure in Inductor whose message names none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.report.conftest import Open, document_of
from tests.store.rows import add_failure
from torchreel.events.inductor import Kernel, Lowering
from torchreel.report import render
from torchreel.report.document import FailureGroup
from torchreel.store import Store, queries
from torchreel.store.failures.signature import FailureClass, Signature, crash_message
from torchreel.store.records import Compile, Event


def failed(
    path: Path, stage: str, after: Event, message: str, kind: FailureClass = "hang"
) -> FailureGroup:
    """The group of another failure of the first compile, right after an event."""
    with Store.open(path, write=True) as store:
        row = first(store)
        (partition,) = {
            each.partition
            for each in queries.stages(store, row)
            if each.stage == "lowering" and each.partition != "backward"
        }
        signature = Signature(kind, stage, partition, (), (), message)
        with store.writer() as w:
            add_failure(
                w, row.recording_id, row.id, signature, message=message, time_ns=after.time_ns
            )
    groups = document_of(path).failures
    return next(group for group in groups if group.message == message)


def first(store: Store) -> Compile:
    return queries.compiles(store, 1)[0]


def events(path: Path, kind: str) -> list[Event]:
    with Store.open(path) as store:
        return queries.events(store, first(store), kind)


@pytest.fixture
def copied(recorded: Path, tmp_path: Path) -> Path:
    """A store with a compile of `relu(down(sigmoid(up(x)) * 2)) + x`."""
    return Path(shutil.copy(recorded, tmp_path / "copy.db"))


@pytest.mark.parametrize(
    ("node", "code"), [("sigmoid", "hidden = torch.sigmoid(self.up(x)) * 2"), ("", None)]
)
def test_a_crash_is_at_the_node_that_its_message_names(
    copied: Path, node: str, code: str | None
) -> None:
    """Events of the last nodes may be missing."""
    before = events(copied, Lowering.kind)[0]
    group = failed(copied, "lowering", before, crash_message("SIGSEGV", node), "crash")
    assert group.node == node
    assert (group.line.code if group.line else None) == code


def test_a_hang_is_at_the_node_that_was_not_lowered(copied: Path) -> None:
    names = [event.name for event in events(copied, Lowering.kind)]
    before = events(copied, Lowering.kind)[names.index("sigmoid") - 1]
    group = failed(copied, "lowering", before, "The stage was not over.")
    assert group.node == "sigmoid"
    assert group.line is not None
    assert group.line.code == "hidden = torch.sigmoid(self.up(x)) * 2"
    assert (group.line.function, Path(group.line.file).name) == ("forward", "conftest.py")


def test_a_message_that_names_a_kernel_is_of_one_of_its_nodes(copied: Path) -> None:
    kernel = next(e for e in events(copied, Kernel.kind) if "sigmoid" in e.name)
    group = failed(copied, "codegen", kernel, f"no compiler likes {kernel.name}.so")
    assert group.line is not None
    assert group.line.code == "hidden = torch.sigmoid(self.up(x)) * 2"
    assert isinstance(kernel.fields, Kernel)
    assert group.node in kernel.fields.origins


def test_where_nothing_is_known_the_page_says_so(copied: Path, look: Open) -> None:
    (kernel, *_) = events(copied, Kernel.kind)
    group = failed(copied, "codegen", kernel, "no line, and no kernel")
    assert (group.line, group.node) == (None, "")
    file = copied.with_suffix(".html")
    file.write_text(render(document_of(copied)), encoding="utf-8")
    page = look(file).go("/", "#failures")
    card = page.locator("#failures .card", has_text="no line, and no kernel").inner_text()
    assert "no line of the program is known" in card
