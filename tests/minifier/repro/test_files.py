"""All files of an export are written, or none."""

from pathlib import Path

import pytest

from torchreel.errors import RefusedError
from torchreel.minifier.repro.export import ExportOptions, refuse_overwriting
from torchreel.minifier.repro.files import write_files

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


@pytest.mark.parametrize("place", ["there.txt/repro", "there.txt"])
def test_a_place_without_room_for_files_is_refused_before_any_work(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "there.txt").write_text("mine")
    with pytest.raises(RefusedError, match=r"there\.txt is no folder"):
        refuse_overwriting(ExportOptions(tmp_path / place, force=True))
    refuse_overwriting(ExportOptions(tmp_path / "new" / "folder"))
    assert [file.name for file in tmp_path.iterdir()] == ["there.txt"]
