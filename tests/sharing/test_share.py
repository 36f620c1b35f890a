"""`share`: the failure leaves, and nothing of the program with it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import torch

from benchmarks.share.canaries import contents, found_in
from tests.minifier.real import shared_worker
from tests.minifier.recorded import record
from tests.sharing.conftest import CANARIES
from torchreel.errors import NotReproduced, UnsupportedError, UsageError
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro.failure_summary import best_known
from torchreel.sharing import pseudonyms
from torchreel.sharing.audit.audit import audit
from torchreel.sharing.share import Shared, ShareOptions, share
from torchreel.store import Store, queries
from torchreel.store.failures.signature import Signature


def test_the_recording_holds_the_canaries(original: Path) -> None:
    """Otherwise nothing is shown by their absence."""
    held = found_in(contents(original), CANARIES)
    assert set(CANARIES) - set(held) <= {"docstring"}


def test_audit_finds_every_canary_of_the_recording(original: Path) -> None:
    said = "\n".join(f"{one.place} {one.text}" for one in audit(original).findings)
    held = found_in(contents(original), CANARIES)
    assert [key for key in held if str(CANARIES[key]) not in said] == []


def test_no_canary_is_in_any_byte_of_the_bundle(shared: Shared) -> None:
    assert found_in(contents(shared.bundle), CANARIES) == []
    assert audit(shared.bundle).findings == ()


def test_the_bundle_fails_with_torch_alone(original: Path, shared: Shared) -> None:
    with Store.open(original) as store:
        row = queries.latest_failing(store)
        assert row is not None
        failure = queries.failure_of(store, row)
    assert failure is not None
    assert shared.verification.holds
    assert "with torch alone" in shared.verification.how
    assert shared.signature.matches(failure.signature)


def test_numbers_that_the_failure_does_not_need_are_gone(shared: Shared) -> None:
    assert shared.leaving.needed == ()
    assert shared.numbers.kept <= 1  # that no gradients are wanted
    assert not {"0.730581235791", "918273645"} & set(shared.leaving.numbers)


def test_a_reader_finds_one_failing_compile_with_its_case(shared: Shared) -> None:
    with Store.open(shared.bundle) as store:
        row = queries.latest_failing(store)
        assert row is not None
        failure = queries.failure_of(store, row)
        assert failure is not None
        case, _ = best_known(store, row, failure, MinifyOptions())
        assert case.call_nodes == shared.call_nodes
        assert queries.environment(store, row.recording_id).keys() == {"torch", "python", "machine"}


def test_the_map_is_for_its_owner_alone_and_reads_an_answer_back(shared: Shared) -> None:
    assert stat.S_IMODE(shared.map.stat().st_mode) == 0o600
    names = pseudonyms.read_map(shared.map)
    by_name = {name: given for given, name in names.items()}
    answer = f"torch.ops.{by_name['bzvqkjxw']}.{by_name['kzwqvjxb']}(...) is fine, x999 is not"
    expected = "torch.ops.bzvqkjxw.kzwqvjxb(...) is fine, x999 is not"
    assert pseudonyms.read_back(answer, names) == expected


def test_nothing_is_overwritten(original: Path, shared: Shared, tmp_path: Path) -> None:
    before = shared.map.read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        share(str(original), shared.bundle)
    with pytest.raises(UsageError, match=r"bundle\.map\.json exists already"):
        share(str(original), tmp_path / "b.db", options=ShareOptions(tmp_path, shared.map))
    assert shared.map.read_bytes() == before
    assert not (tmp_path / "b.db").exists()


def test_another_failure_is_never_called_the_same(original: Path, tmp_path: Path) -> None:
    """What is recorded is changed to a failure that this graph does not have."""
    wrong = Signature("exception", "lowering", "", ("KeyError",), ("torch.x:f",), "no such thing")
    copy = _with_signature(original, tmp_path / "copy.db", wrong)
    path = tmp_path / "b.db"
    with pytest.raises(NotReproduced, match="nothing was written"):
        share(str(copy), path, oracle=shared_worker())
    assert list(tmp_path.glob("b.*")) == []
    options = ShareOptions(path, unverified=True)
    found = share(str(copy), path, options=options, oracle=shared_worker())
    assert not found.verification.holds
    assert found.signature == Signature("exception", "lowering")
    assert found_in(contents(path), CANARIES) == []


def _with_signature(original: Path, path: Path, signature: Signature) -> Path:
    with Store.open(original) as store, store.copied(path) as copy:
        row = queries.latest_failing(copy)
        assert row is not None
        failure = queries.failure_of(copy, row)
        assert failure is not None
        with copy.writer() as writer:
            writer.update(
                "failures", failure.id, signature=signature.to_json(),
                signature_digest=signature.digest,
            )  # fmt: skip
    return path


def _with_print(x: torch.Tensor) -> torch.Tensor:
    print(x)
    return x.sin()


def test_a_program_does_not_leave(tmp_path: Path) -> None:
    """A failure of Dynamo's own is shown by code alone."""
    path = record(tmp_path / "run.db", _with_print, torch.ones(2), fullgraph=True)
    with pytest.raises(UnsupportedError, match=rf"minify {path}#1/0/0 --trust' makes a script"):
        share(str(path), tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()


def _own_backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
    raise NotImplementedError("no kernel")


def test_a_backend_of_the_program_does_not_leave(tmp_path: Path) -> None:
    path = record(tmp_path / "run.db", torch.sin, torch.ones(2), backend=_own_backend)
    with pytest.raises(UnsupportedError, match=r"code of the program's.*minify .* --trust"):
        share(str(path), tmp_path / "b.db")
    assert list(tmp_path.iterdir()) == [path]


def test_a_compile_that_did_not_fail_has_nothing_to_share(tmp_path: Path) -> None:
    path = record(tmp_path / "run.db", torch.sin, torch.ones(2), backend="eager")
    with pytest.raises(UsageError, match="No compile in"):
        share(f"{path}#1/0/0", tmp_path / "b.db")


def test_digits_of_a_number_in_a_digest_are_no_canary() -> None:
    number = float.fromhex("0x1.a3c4e8p+2")
    assert found_in([b"sha256 77a3c4e8f1"], {"one": number}) == []
    assert found_in([b'"0x1.a3c4e8p+2"'], {"one": number}) == ["one"]


@pytest.mark.parametrize("which", ["store and bundle", "store and map", "bundle and map"])
def test_no_file_is_written_over_another(tmp_path: Path, which: str) -> None:
    """Not with --force: the recording, or the only key to the names, would be gone."""
    store = tmp_path / "run.db"
    Store.open(store, create=True).close()
    before = store.read_bytes()
    (tmp_path / "link.db").symlink_to(store)
    other = tmp_path / "other.db"
    output, names = {
        "store and bundle": (tmp_path / "link.db", other),
        "store and map": (other, store),
        "bundle and map": (other, other),
    }[which]
    options = ShareOptions(output, map=names, force=True)
    with pytest.raises(UsageError, match="can't be one file"):
        share(f"{store}#1", output, options=options)
    assert store.read_bytes() == before
    assert not other.exists()
