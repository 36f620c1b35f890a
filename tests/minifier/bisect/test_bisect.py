"""A real failure is found in the lowering that it comes from, and nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from sqlalchemy import select

from tests.minifier.real import PLANTED, shared_worker
from tests.minifier.recorded import record
from torchreel.errors import UnsupportedError, UsageError
from torchreel.minifier.bisect import Bisection, bisect, parse_step, take_step
from torchreel.minifier.options import MinifyOptions
from torchreel.store import queries, schema
from torchreel.store.database import Store
from torchreel.store.records import Compile

pytestmark = pytest.mark.slow


def unhealthy(gm: object, inputs: object) -> object:
    """A backend that nobody imports."""
    raise RuntimeError("planted: this one raises")


def scatter(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A scatter along an empty dimension (pytorch issue 188213): the fifth lowering fails."""
    b = torch.nn.functional.adaptive_max_pool1d((torch.relu(x) + y).sigmoid(), (0,))
    return torch.scatter(b, -1, b, b)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("bisect") / "run.db"
    record(path, scatter, torch.ones(4, 8), torch.ones(4, 8))
    with Store.open(path, write=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def failing(store: Store) -> Compile:
    found = queries.latest_failing(store)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def found(store: Store, failing: Compile) -> Bisection:
    return bisect(store, failing, oracle=shared_worker())


@pytest.mark.slow
def test_the_lowering_is_named_with_its_number(found: Bisection) -> None:
    assert (found.backend, found.part) == ("inductor", "lowerings")
    assert "aten.scatter" in found.application
    verdicts = {str(tried.step): tried.fails for tried in found.tried}
    assert verdicts[str(found.failing)]
    assert not verdicts[str(found.passing)]
    assert not verdicts["aot_eager_decomp_partition"]


def test_a_config_entry_cures_it(found: Bisection) -> None:
    assert found.cure == "torch._inductor.config.fallback_by_default = True"


def test_a_second_time_costs_no_run(store: Store, failing: Compile, found: Bisection) -> None:
    again = bisect(store, failing, oracle=shared_worker())
    assert again.runs == 0
    assert again.tried == found.tried
    with store.connect() as connection:
        query = select(schema.findings.c.document).where(schema.findings.c.kind == "bisection")
        kept = connection.execute(query).scalars().all()
    assert {Bisection.from_json(document).in_words() for document in kept} == {found.in_words()}


def test_one_step_can_be_taken_again(store: Store, failing: Compile, found: Bisection) -> None:
    passing = found.passing
    assert passing is not None
    for step, fails in ((found.failing, True), (passing, False)):
        assert take_step(store, failing, step, oracle=shared_worker()).fails is fails


def test_nothing_of_the_users_is_touched(
    store: Store, failing: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bisect").mkdir()
    (tmp_path / "bisect" / "bisect_status.txt").write_text("backend=eager\nsubsystem=\n")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    before = {**os.environ}
    take_step(store, failing, parse_step("inductor:lowerings:0"), oracle=shared_worker())
    assert {**os.environ} == before
    assert [path.name for path in tmp_path.rglob("*")] == ["bisect", "bisect_status.txt"]


def test_what_did_not_fail_is_refused(tmp_path: Path) -> None:
    path = record(tmp_path / "run.db", torch.relu, torch.ones(2), backend="eager")
    with Store.open(path, write=True) as store:
        (compile, *_) = queries.compiles(store, 1)
        with pytest.raises(UsageError, match=r"No compile in .* failed"):
            bisect(store, compile, oracle=shared_worker())


def test_a_backend_that_nobody_imports_is_named(tmp_path: Path) -> None:
    """Without it nothing fails, which says nothing of the components of torch."""
    path = record(tmp_path / "run.db", torch.sin, torch.ones(2), backend=unhealthy)
    with Store.open(path, write=True) as store:
        failing = queries.latest_failing(store)
        assert failing is not None
        options = MinifyOptions(imports=(PLANTED,))
        with pytest.raises(UnsupportedError, match="defines 'unhealthy' with --import MODULE"):
            bisect(store, failing, options=options, oracle=shared_worker())
