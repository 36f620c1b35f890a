"""Pages of events: what goes in comes out, in the order of the event log; a lie is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from tests.store.rows import add_compile, add_event, add_recording
from torchreel.errors import DamagedStore, UsageError
from torchreel.store import Store, queries
from torchreel.store.addressing import parse
from torchreel.store.blobs.page_reader import read_pages
from torchreel.store.blobs.pages import COLUMNS, Inline, write_frames, write_page, write_pages
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import EventPages
from torchreel.store.writer import Writer

rows = st.lists(
    st.tuples(
        st.integers(0, 2**40), st.integers(0, 2**46).map(lambda tick: tick * 100_000),
        st.none() | st.just("joint"), st.text(),
        st.none() | st.integers(0, 99), st.none() | st.integers(0, 99),
        st.none() | st.text() | st.lists(st.text(), min_size=1, max_size=1),
        st.lists(st.none() | st.integers() | st.text(), min_size=2, max_size=2),
    ),
    min_size=1,
)  # fmt: skip


@given(rows)
def test_events_survive_the_way_through_a_page(rows: list[tuple[object, ...]]) -> None:
    columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    page = EventPages(1, 7, 3, 0, 0, [["shape_env.guard", len(rows)]], "d")
    found = list(read_pages(page, write_pages([write_page(columns, ("a", "b"), str)])))
    for event, row in zip(found, rows, strict=True):
        seq, time_ns, stage, name, cause, stack, payload, data = row
        assert (event.recording_id, event.compile_id, event.kind) == (7, 3, "shape_env.guard")
        assert (event.seq, event.time_ns, event.stage, event.name) == (seq, time_ns, stage, name)
        assert (event.cause, event.stack) == (cause, stack)
        assert event.payload == (Inline(payload[0]) if isinstance(payload, list) else payload)
        assert event.data == dict(zip(("a", "b"), data, strict=True))  # type: ignore[call-overload]


def _add_page(w: Writer, recording: int, compile_id: int | None, seqs: list[int]) -> None:
    some = {name: [None] * len(seqs) for name in COLUMNS}
    columns = {**some, "seq": seqs, "time_ns": seqs, "data": [[n] for n in seqs]}
    w.add(
        "event_pages", recording_id=recording, compile_id=compile_id, kinds=[["k", len(seqs)]],
        first_seq=seqs[0], last_seq=seqs[-1],
        digest=w.blob(write_pages([write_page(columns, ("n",), str)])),
    )  # fmt: skip


def test_rows_and_pages_are_one_event_log(store: Store, path: Path) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        compile_id = add_compile(w, recording)
        add_event(w, recording, 4, compile_id=compile_id)
        _add_page(w, recording, compile_id, [2, 5, 9])
        _add_page(w, recording, None, [3, 6])
    whole = queries.recording(store, recording)
    (compile_,) = queries.compiles(store, recording)
    assert [event.seq for event in queries.events(store, whole)] == [2, 3, 4, 5, 6, 9]
    assert [event.seq for event in queries.events(store, compile_)] == [2, 4, 5, 9]
    assert [event.seq for event in queries.events(store, whole, between=(3, 5))] == [3, 4, 5]
    assert queries.event_counts(store, whole) == {"k": 6}
    assert queries.event_at(store, parse(f"{path}#1@6")).data == {"n": 6}
    with pytest.raises(UsageError, match="not in the event log"):
        queries.event_at(store, parse(f"{path}#1@7"))


def test_a_page_has_as_many_events_as_its_row_says(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        _add_page(w, recording, add_compile(w, recording), [2, 5, 9])
        w.connection.execute(text("UPDATE event_pages SET kinds = '[[\"k\",9223372036854775807]]'"))
    whole = queries.recording(store, recording)
    assert queries.event_counts(store, whole) == {"k": 9223372036854775807}
    with pytest.raises(DamagedStore, match="a page of 'k' has 3 events, and not 9"):
        queries.events(store, whole)


@pytest.mark.parametrize(
    "lie", [b"", b"[]", b"{}", b'{"fields":null}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_page_that_is_none_is_a_damaged_store(lie: bytes) -> None:
    page = EventPages(1, 1, None, 1, 1, [["k", 1]], "d")
    for blob in (lie, write_pages([lie]), write_pages([lie, lie])):
        with pytest.raises(DamagedStore, match="Pages d"):
            list(read_pages(page, blob))


@pytest.mark.parametrize(
    "lie",
    [
        None,
        3,
        "k",
        [3],
        [["k"]],
        [[1, 1]],
        [["k", None]],
        [["k", 0]],
        [["k", -1]],
        [["k", 1 << 63]],
        {"k": 1},
    ],
)
def test_kinds_that_are_none_are_a_damaged_store(lie: Json) -> None:
    page = EventPages(1, 1, None, 1, 1, lie, "d")
    with pytest.raises(DamagedStore, match="Row 1 of event_pages"):
        list(read_pages(page, b"[\n\n]"))


def test_a_stack_is_found_from_its_innermost_frame(store: Store) -> None:
    with store.writer() as w:
        recording = add_recording(w)
        for page in ([(1, None), (2, 1)], [(3, 2), (4, 1)]):
            frames = [(number, parent, "m.py", number, "f") for number, parent in page]
            w.add("stack_pages", recording_id=recording, digest=w.blob(write_frames(frames)))
        add_event(w, recording, 1, stack=3)
    (event,) = queries.events(store, queries.recording(store, recording))
    assert [frame.line for frame in queries.stack(store, event)] == [1, 2, 3]
