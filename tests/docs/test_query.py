"""The page about queries has every view with its columns, and its questions can be asked."""

import re
from pathlib import Path

import pytest

from tests.cli.stores import failing
from torchreel.analysis.query.query import query
from torchreel.analysis.query.views import VIEWS, QueryScope, page
from torchreel.store import Store

PAGE = (Path(__file__).parent.parent.parent / "docs" / "query.md").read_text(encoding="utf-8")
_SQL = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
QUESTIONS = [part for text in _SQL for part in text.split(";\n") if part.strip()]


def test_the_columns_are_those_of_the_views() -> None:
    assert PAGE.endswith(page()), "write it anew: python -m torchreel.analysis.query.views"


@pytest.mark.parametrize("question", QUESTIONS, ids=range(len(QUESTIONS)))
def test_a_question_can_be_asked(tmp_path: Path, question: str) -> None:
    path = tmp_path / "run.db"
    Store.open(path, create=True).close()
    with Store.open(failing(path)) as store:
        assert query(QueryScope(store), question).columns


def test_there_are_questions_to_many_views() -> None:
    assert len(QUESTIONS) > 3
    assert sum(name in " ".join(QUESTIONS) for name in VIEWS) > 5
