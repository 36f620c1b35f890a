"""All files of an export are written, or none."""

from pathlib import Path

import pytest

from torchreel.errors import RefusedError
from torchreel.minifier.export.files import write_files

TEXTS = {"repro": "a\n", "issue": "ß\n"}


def test_files_are_written_and_nothing_else(tmp_path: Path) -> None:
    made = write_files(tmp_path / "new", TEXTS)
    assert [path.name for path in made] == ["repro.py", "issue.md"]
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == {
        "repro.py": "a\n",
        "issue.md": "ß\n",
    }


def test_a_folder_in_the_way_of_one_file_stops_all(tmp_path: Path) -> None:
    (tmp_path / "issue.md").mkdir()
    with pytest.raises(RefusedError, match=r"issue\.md can't be written"):
        write_files(tmp_path, TEXTS)
    assert [path.name for path in tmp_path.iterdir()] == ["issue.md"]


def test_what_can_not_be_encoded_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_files(tmp_path, {**TEXTS, "issue": "\ud800"})
    assert list(tmp_path.iterdir()) == []
