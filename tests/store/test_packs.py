"""Packs: blobs that are written together are kept together, until the last of them goes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from sqlalchemy import select, text

from tests.store.rows import add_recording
from tests.store.statements import statements
from torchreel.errors import DamagedStore, NewerStore
from torchreel.recorder.event_log.retention import drop_material
from torchreel.store import Store, schema
from torchreel.store.blobs import dictionaries, packing, packs
from torchreel.store.blobs.pages import Inline
from torchreel.store.deletion.blobs import sweep
from torchreel.store.documents.jsontypes import digest_of
from torchreel.store.files.direct import DirectStore
from torchreel.store.recording import open_for_recording
from torchreel.store.sending.contents import SourceBlobs
from torchreel.store.sending.target import send_blobs

WORDS = [f"node_{n} calls aten.mul with node_{n * 7919 % 1000}; ".encode() for n in range(900)]
GRAPHS = [b"".join(WORDS) + b"stage %d" % n for n in range(4)]
"""What one compile writes: the same graph over and over, with small changes."""


@pytest.fixture
def direct(path: Path) -> Iterator[DirectStore]:
    store = open_for_recording(str(path))
    assert isinstance(store, DirectStore)
    yield store
    store.close()


def _kept(store: Store) -> dict[str, int]:
    """How many bytes there are in each table."""
    with store.connect() as connection:
        return {
            table: connection.execute(text(f"SELECT total(length(data)) FROM {table}")).scalar_one()
            for table in ("blobs", "packs")
        }


def test_blobs_of_one_transaction_share_what_they_say(path: Path, direct: DirectStore) -> None:
    with direct.writer() as w:
        digests = [w.blob(graph) for graph in GRAPHS]
        assert w.blob(GRAPHS[0]) == digests[0]
        assert w.blob(b"x") not in digests
    with direct.writer() as w:
        assert w.blob(GRAPHS[1]) == digests[1]
    with Store.open(path) as store:
        assert [store.read_blob(digest) for digest in digests] == GRAPHS
        kept = _kept(store)
    alone = len(packing.pack(GRAPHS[0])[1])
    assert kept["blobs"] == 0
    assert 0 < kept["packs"] < 1.5 * alone


def test_many_blobs_are_read_with_a_few_statements(path: Path, url: str) -> None:
    words = [b"%d of %d " % (n, m) * 20 for m in (1, 2, 3) for n in range(20)]
    with Store.open(path, write=True) as store, store.writer() as w:
        digests = [w.blob(data) for data in words]
    with Store.open(path) as source, Store.open(url, write=True) as central:
        sent = SourceBlobs(source)
        sent.named_by([" ".join(digests)])
        for start in range(0, len(words), 20):
            send_blobs(sent, digests[start : start + 20], central)
        with statements(central) as executed:
            assert list(central.read_blobs(digests)) == words
    assert len(executed) == 2 * 2


def test_blobs_of_packs_in_parts_are_read_together(path: Path, direct: DirectStore) -> None:
    digests = []
    for graph in (*GRAPHS, *(graph[::-1] for graph in GRAPHS)):
        with direct.writer() as w:
            digests += [w.blob(graph), w.blob(graph[:20])]
    mixed = [*digests[::-1], *digests[::3]]
    with Store.open(path) as store:
        assert list(store.read_blobs(mixed)) == [store.read_blob(digest) for digest in mixed]
        with pytest.raises(DamagedStore, match="not in it"):
            list(store.read_blobs([digests[0], "0" * 64]))


def test_a_commit_goes_on_with_the_pack_that_is_open(path: Path, direct: DirectStore) -> None:
    """What one transaction has said costs the next one nothing, and each can be read at once."""
    digests = []
    for graph in GRAPHS:
        with direct.writer() as w:
            digests.append(w.blob(graph))
        with Store.open(path) as store:
            assert [store.read_blob(digest) for digest in digests] == GRAPHS[: len(digests)]
            kept = _kept(store)
    with Store.open(path) as store:
        assert [store.read_blob(digest) for digest in digests[::-1]] == GRAPHS[::-1]
    assert kept["blobs"] == 0
    assert kept["packs"] < 1.5 * len(packing.pack(GRAPHS[0])[1])


def test_a_transaction_that_fails_ends_the_pack(path: Path, direct: DirectStore) -> None:
    """The next part must not lean on one that was rolled back."""
    with direct.writer() as w:
        digests = [w.blob(GRAPHS[0])]

    def fail_half_way() -> None:
        with direct.writer() as w:
            w.blob(GRAPHS[1])
            w.flush()
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail_half_way()
    with direct.writer() as w:
        digests += [w.blob(graph) for graph in GRAPHS[1:]]
    with Store.open(path) as store:
        assert [store.read_blob(digest) for digest in digests] == GRAPHS
        assert _parts(store) == [(1, None), (2, None)]


@pytest.mark.parametrize("deleted", [True, False])
def test_another_process_wrote_meanwhile(path: Path, direct: DirectStore, deleted: bool) -> None:
    """The pack goes on unless its end was deleted; ids of deleted rows are given again."""
    with direct.writer() as w:
        first = w.blob(GRAPHS[0])
    with direct.writer() as w:
        recording = add_recording(w)  # type: ignore[arg-type]
        w.blob(GRAPHS[1])
    other = open_for_recording(str(path))
    assert isinstance(other, DirectStore)
    with other.writer() as w:
        if deleted:
            w.connection.execute("DELETE FROM blobs")
            w.connection.execute(packs.DROP_UNUSED)
        else:
            w.add("stack_pages", recording_id=recording, digest=first)
        theirs = w.blob(GRAPHS[2])
    other.close()
    with direct.writer() as w:
        ours = w.blob(GRAPHS[3])
    with Store.open(path) as store:
        assert [store.read_blob(theirs), store.read_blob(ours)] == GRAPHS[2:]
        assert _parts(store) == (
            [(1, None), (2, None)] if deleted else [(1, None), (2, 1), (3, None), (4, 1)]
        )


def _parts(store: Store) -> list[tuple[int, int | None]]:
    with store.connect() as connection:
        rows = connection.execute(text("SELECT id, first FROM packs ORDER BY id")).all()
    return [(id, first) for id, first in rows]


def test_a_pack_is_bounded(
    path: Path, direct: DirectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wants one blob has to unpack what is before it in its pack."""
    for module in ("files.direct", "blobs.packs"):
        monkeypatch.setattr(f"torchreel.store.{module}.MOST_IN_PACK", 50_000)
    digests = []
    for graph in (*GRAPHS, GRAPHS[0] * 2):
        with direct.writer() as w:
            digests.append(w.blob(graph))
    with Store.open(path) as store:
        assert [len(store.read_blob(d)) for d in digests] == [len(g) for g in GRAPHS] + [
            2 * len(GRAPHS[0])
        ]
        with store.connect() as connection:
            sizes = connection.execute(text("SELECT size, first FROM packs")).all()
    assert len(GRAPHS[0]) < 50_000 < 2 * len(GRAPHS[0])
    assert sizes == [(len(graph), None) for graph in GRAPHS]


BOMB = zstandard.ZstdCompressor().compress(bytes(50_000_000))


@pytest.mark.parametrize(
    ("lie", "complaint"),
    [
        ("DELETE FROM packs", "a pack that the store lacks"),
        ("UPDATE packs SET data = x'00'", "does not unpack"),
        ("UPDATE packs SET size = size - 1", "not as long as it says"),
        ("UPDATE packs SET size = size + 1", "not as long as it says"),
        (f"UPDATE packs SET size = {2**40}", "which no pack is"),
        ("UPDATE packs SET first = id + 1", "a pack that the store lacks"),
        ("UPDATE packs SET dictionary = 99", "only a newer torchreel has"),
        ("UPDATE packs SET size = -1", "which no pack is"),
        ("UPDATE packs SET data = :bomb", "not as long as it says"),
        ("UPDATE blobs SET start = start + 1", "should be|another digest"),
        ("UPDATE blobs SET start = -1", "no place in its pack"),
        ("UPDATE blobs SET start = NULL", "no place in its pack"),
        ("UPDATE blobs SET size = size + 1", "should be|another digest"),
        ("UPDATE blobs SET size = -1", "no place in its pack"),
        ("UPDATE blobs SET size = 'large'", "not kept as blobs are"),
        ("UPDATE packs SET size = 'large'", "not kept as blobs are"),
    ],
)
def test_a_pack_that_is_not_what_was_stored(
    path: Path, direct: DirectStore, lie: str, complaint: str
) -> None:
    with direct.writer() as w:
        digests = [w.blob(graph) for graph in GRAPHS]
    with Store.open(path, write=True) as store:
        with store.writer() as writer:
            writer.connection.execute(text(lie), {"bomb": BOMB} if ":bomb" in lie else {})
        with pytest.raises((DamagedStore, NewerStore), match=complaint):
            store.read_blob(digests[-1])


def test_a_pack_goes_with_the_last_blob_in_it(path: Path, direct: DirectStore) -> None:
    with direct.writer() as w:
        used, _ = [w.blob(graph) for graph in GRAPHS[:2]]
        recording = add_recording(w)  # type: ignore[arg-type]
        w.add("stack_pages", recording_id=recording, digest=used)
    with Store.open(path, write=True) as store:
        assert sweep(store) == 1
        assert store.read_blob(used) == GRAPHS[0]
        assert _kept(store)["packs"] > 0
        with store.writer() as writer:
            writer.delete("recordings", recording)
        assert sweep(store) == 1
        assert _kept(store) == {"blobs": 0, "packs": 0}


def test_material_that_is_dropped_while_it_waits_for_its_pack(
    path: Path, direct: DirectStore
) -> None:
    """As in flight mode, when the compile went well."""
    with direct.writer() as w:
        recording = add_recording(w)  # type: ignore[arg-type]
        columns = {"recording_id": recording, "attempt": 0, "frame_line": 1, "started_ns": 1}
        names = dict.fromkeys(("compile_id", "frame_name", "frame_file", "status"), "x")
        compiles = [w.add("compiles", **columns, **names) for _ in range(2)]
        for compile_id, graph in zip(compiles, GRAPHS, strict=False):
            w.add(
                "checkpoints", compile_id=compile_id, entry="graph", partition="", ordinal=0,
                digest=w.blob(graph),
            )  # fmt: skip
        drop_material(w, compiles[0])
        again = w.blob(GRAPHS[0])
    with direct.writer() as w:
        drop_material(w, compiles[1])
    with Store.open(path) as store:
        assert store.read_blob(again) == GRAPHS[0]
        with store.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM blobs")).scalar() == 1
        assert _parts(store) == [(2, None)]


def test_a_short_payload_has_its_text_with_it(store: Store) -> None:
    digest = Inline("a \u00e9 \udcff")
    assert digest == Inline("a \u00e9 \udcff") != Inline("b")
    assert store.read_blob(digest) == "a \u00e9 \udcff".encode("utf-8", "surrogatepass")


DICTIONARIES = {
    1: "df53f8189ce5aa15c5a12d148409135c7eee27121d4e9c191515490c314eac6a",
    2: "4f3c1258aacdb040943c9571b68fd5fe953c3428703465ef0772b8052de2339d",
}


def test_a_dictionary_stays_what_it_was() -> None:
    """Every pack that was ever written with it needs it, to the byte."""
    found = {number: dictionaries.get(number) for number in DICTIONARIES}
    assert {number: known and digest_of(known.as_bytes()) for number, known in found.items()} == (
        DICTIONARIES
    )
    assert max(DICTIONARIES) == dictionaries.NEWEST


@pytest.mark.parametrize("number", [None, *DICTIONARIES])
def test_a_pack_is_read_with_the_dictionary_it_was_written_with(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    with monkeypatch.context() as then:
        then.setattr(dictionaries, "NEWEST", number)
        store = open_for_recording(str(path))
        with store.writer() as w:
            digests = [w.blob(graph) for graph in GRAPHS]
        store.close()
    with Store.open(path) as reader:
        assert [reader.read_blob(digest) for digest in digests] == GRAPHS
        rows = reader.rows(select(schema.packs.c.dictionary))
        assert [row.dictionary for row in rows] == [number]


def test_what_would_look_like_a_bomb_is_kept_as_it_is(tmp_path: Path) -> None:
    data = b'{"zeros":[' + b"0, " * 8_000_000 + b"0]}"
    with Store.open(tmp_path / "run.db", create=True) as store:
        with store.writer() as writer:
            digest = writer.blob(data)
        assert store.read_blob(digest) == data


def test_an_index_that_does_not_agree_with_its_table(
    path: Path, direct: DirectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a damaged file, SQLite may find a row by an id that is not in the row."""
    with direct.writer() as w:
        digests = [w.blob(graph) for graph in GRAPHS]
    lying = packing.PARTS.replace("SELECT id", "SELECT id + 100", 1)
    assert lying != packing.PARTS
    monkeypatch.setattr(packing, "PARTS", lying)
    with Store.open(path) as store, pytest.raises(DamagedStore, match="a pack that the store"):
        store.read_blob(digests[-1])
