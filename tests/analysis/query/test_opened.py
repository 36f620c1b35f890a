"""`torchreel.open`: the views of a store in Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import torchreel
from torchreel.analysis.query.opened import Rows
from torchreel.analysis.query.rows import CompilesRow
from torchreel.analysis.query.views import VIEWS
from torchreel.errors import TorchreelError, UsageError


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of three compiles, one of which fails."""

    def refuses(gm: torch.fx.GraphModule, inputs: object) -> object:
        raise RuntimeError("<b>no</b>")

    path = tmp_path_factory.mktemp("opened") / "run.db"
    torch._dynamo.reset()
    with torchreel.record(str(path)):
        double = torch.compile(lambda x: x * 2, backend="aot_eager")
        double(torch.ones(3))
        double(torch.ones(4))
        with pytest.raises(Exception, match="no"):
            torch.compile(lambda x: x + 1, backend=refuses)(torch.ones(3))
    torch._dynamo.reset()
    return path


def test_the_views_are_typed_rows(recorded: Path) -> None:
    with torchreel.open(recorded) as run:
        assert [row.compile for row in run.compiles] == ["1/0/0", "1/0/1", "1/1/0"]
        assert isinstance(run.compiles[0], CompilesRow)
        (failure,) = run.failures
        assert failure.compile == "1/1/0"
        assert "<b>no</b>" in failure.message
        assert [row.compile for row in run.recompiles] == ["1/0/1"]
        for view in VIEWS:
            rows = getattr(run, view)
            assert rows.columns == tuple(VIEWS[view].columns)
            assert [tuple(row) for row in rows] == [*run.query(f"SELECT * FROM {view}")]
    assert len(run.compiles) == 3  # what was read stays


def test_an_address_narrows_them(recorded: Path) -> None:
    with torchreel.open(f"{recorded}#1/0/1") as run:
        assert [row.compile for row in run.compiles] == ["1/0/1"]
        assert len(run.failures) == 0
        assert run.query("SELECT count(*) AS n FROM compiles")[0] == (1,)


def test_a_notebook_shows_rows_and_no_markup_of_a_store(recorded: Path) -> None:
    with torchreel.open(recorded) as run:
        shown = run.failures._repr_html_()
        assert "&lt;b&gt;no&lt;/b&gt;" in shown
        assert "<b>no" not in shown
        assert "1/0/1" in run._repr_html_()
        assert repr(run) == f"<torchreel.open({str(recorded)!r})>"
        first = run.compiles[:1]
    assert isinstance(first, Rows)
    assert first._repr_html_().count("<tr>") == 2
    assert "and 150 more" in Rows(("n",), [(n,) for n in range(200)])._repr_html_()


def test_a_data_frame_where_pandas_is_installed(recorded: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with torchreel.open(recorded) as run:
        frame = run.compiles.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["compile"]) == ["1/0/0", "1/0/1", "1/1/0"]


def test_a_data_frame_where_polars_is_not(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with torchreel.open(recorded) as run, pytest.raises(ImportError):
        run.compiles.to_polars()


def test_what_is_not_there_is_said(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(TorchreelError, match="There is no store"):
        torchreel.open(tmp_path / "none.db")
    with pytest.raises(TorchreelError):
        torchreel.open(f"{recorded}#7")
    with torchreel.open(recorded) as run, pytest.raises(UsageError, match="only a SELECT"):
        run.query("DELETE FROM failures")
