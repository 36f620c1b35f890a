"""`torchreel.open`: the views of a store in Python, as typed rows.

Lives here: rows as a sequence, as a data frame and as a table of a notebook.  Not here: what the
columns mean (`rows`), what fills them (`views`), SQL (`query`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

from torchreel.analysis.query.notebook import table
from torchreel.analysis.query.query import SECONDS
from torchreel.analysis.query.query import query as run_query
from torchreel.analysis.query.rows import (
    CacheDecisionsRow,
    CompilesRow,
    FailuresRow,
    GraphBreaksRow,
    GraphNodesRow,
    GuardsRow,
    KernelsRow,
    RecompilesRow,
    StagesRow,
    SymbolsRow,
)
from torchreel.analysis.query.views import VIEWS, QueryScope
from torchreel.store import Store, parse

Row = TypeVar("Row", bound="tuple[Any, ...]")
_SHOWN = 50
"""Rows that a notebook shows."""
_SHOWN_FAILURES = 5
"""Failures that it shows below the compiles of a store."""


class Rows(Sequence[Row], Generic[Row]):
    """Rows of a view or of a statement; a notebook shows them as a table."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self.columns = tuple(columns)
        self._rows = rows

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Rows[Row]:
        if isinstance(index, slice):
            return Rows(self.columns, self._rows[index])
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {', '.join(self.columns)}>"

    def to_pandas(self) -> Any:
        """Return a data frame of pandas.  Raises ImportError where that is not installed."""
        pandas: Any = import_module("pandas")
        return pandas.DataFrame.from_records(list(self._rows), columns=list(self.columns))

    def to_polars(self) -> Any:
        """Return a data frame of polars.  Raises ImportError where that is not installed."""
        polars: Any = import_module("polars")
        names = list(self.columns)
        return polars.DataFrame(
            list(self._rows), schema=names, orient="row", infer_schema_length=None
        )

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for a notebook; nothing of a store is markup in it."""
        shown = self._rows[:_SHOWN]
        return table(self.columns, shown, len(self) - len(shown))


class OpenedStore:
    """A store, a recording or a compile: the views as typed rows, each read when it is asked for.

    Use it with `with`, or close it.
    """

    def __init__(self, address: str | Path) -> None:
        """Open what an address names: `run.db`, `run.db#2`, `run.db#2/0/1`.

        Raises TorchreelError where there is no such store, recording or compile.
        """
        where = parse(str(address))
        with ExitStack() as opening:
            self.store = opening.enter_context(Store.open(where.store))
            self._scope = QueryScope.at(self.store, where)
            self._closing = opening.pop_all()
        self.address = str(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was read stays."""
        self._closing.close()

    def __repr__(self) -> str:
        return f"<torchreel.open({self.address!r})>"

    def _repr_html_(self) -> str:
        """Return the compiles as a table, for a notebook, and each failure; one compile with its
        stages.
        """
        failures = "".join(row._repr_html_() for row in self.failures[:_SHOWN_FAILURES])
        if len(self.compiles) == 1:
            return self.compiles[0]._repr_html_() + failures + self.stages._repr_html_()
        return self.compiles._repr_html_() + failures

    def _view(self, name: str, row: type[Row]) -> Rows[Row]:
        view = VIEWS[name]
        assert view.row is row
        make: Callable[..., Row] = row
        found = [make(*values) for values in view.rows(self._scope)]
        return Rows(tuple(view.columns), found)

    @cached_property
    def compiles(self) -> Rows[CompilesRow]:
        """The attempts at frames."""
        return self._view("compiles", CompilesRow)

    @cached_property
    def failures(self) -> Rows[FailuresRow]:
        """The exceptions, wrong results, crashes and hangs."""
        return self._view("failures", FailuresRow)

    @cached_property
    def stages(self) -> Rows[StagesRow]:
        """The steps of the pipeline that were entered."""
        return self._view("stages", StagesRow)

    @cached_property
    def graph_nodes(self) -> Rows[GraphNodesRow]:
        """The nodes of all graphs."""
        return self._view("graph_nodes", GraphNodesRow)

    @cached_property
    def guards(self) -> Rows[GuardsRow]:
        """The guards of compiled code."""
        return self._view("guards", GuardsRow)

    @cached_property
    def symbols(self) -> Rows[SymbolsRow]:
        """The symbols of ShapeEnvs, as they are in the end."""
        return self._view("symbols", SymbolsRow)

    @cached_property
    def recompiles(self) -> Rows[RecompilesRow]:
        """The cached entries whose guards failed."""
        return self._view("recompiles", RecompilesRow)

    @cached_property
    def graph_breaks(self) -> Rows[GraphBreaksRow]:
        """The graph breaks."""
        return self._view("graph_breaks", GraphBreaksRow)

    @cached_property
    def cache_decisions(self) -> Rows[CacheDecisionsRow]:
        """The answers of caches of compiled graphs."""
        return self._view("cache_decisions", CacheDecisionsRow)

    @cached_property
    def kernels(self) -> Rows[KernelsRow]:
        """The kernels that were generated, and a library's that are called."""
        return self._view("kernels", KernelsRow)

    def query(self, statement: str, *, seconds: float = SECONDS) -> Rows[tuple[Any, ...]]:
        """Run one SELECT over the views, as `torchreel query` does.

        Raises UsageError for what SQLite does not understand, for what does more than read, and for
        what takes longer than `seconds`.
        """
        found = run_query(self._scope, statement, seconds=seconds)
        return Rows(found.columns, found.rows)


def open(address: str | Path) -> OpenedStore:
    """Open a store, a recording or a compile, as `OpenedStore` does."""
    return OpenedStore(address)
