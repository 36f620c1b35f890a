"""Counts the secrets of a program in its recordings and in what is made of them.

    python -m benchmarks.canaries [--work FOLDER] [--level LEVEL ...] [--mode MODE ...]

Records two programs at each level and in both modes: one with a canary in every place where a text
can stand (`tests.recorder.canaries`), one that names its secrets in every way (`ways`). Of each
full recording it writes what the commands make of it: a trace for tlparse, a page, a script with
its issue and its test, JSON. Then it looks for each canary in every byte of all files, unpacked, as
it is, in hex and in base64, and prints a table: found/planted.  Exits with 1 where something is
found that the tables of docs/redaction.md say does not stay.  Half an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.canaries import ways
from benchmarks.canaries.contents import Search, contents
from tests.recorder import canaries, programs

LEVELS, MODES = ("none", "default", "all"), ("full", "flight")
DOCUMENT = Path(__file__).parents[2] / "docs/redaction.md"
_VIEWS = (
    "compiles", "failures", "stages", "graph_nodes", "guards", "symbols", "recompiles",
    "graph_breaks", "cache_decisions", "kernels",
)  # fmt: skip
_SOME = 3
"""Failing compiles of a recording that are shown."""
_TORCHREEL = (sys.executable, "-m", "torchreel.cli")


class Planted(NamedTuple):
    """A canary, the row of a table that it belongs to, and the levels at which it stays."""

    text: str
    row: str
    stays: frozenset[str]


class Program(NamedTuple):
    """A program, how it is started, and the canaries in it."""

    name: str
    files: Mapping[str, str]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    planted: Sequence[Planted]


def rows(words: str) -> dict[str, list[str]]:
    """Return the rows of the table of docs/redaction.md whose head begins with these words."""
    _, _, rest = DOCUMENT.read_text().partition(f"\n| {words} |")
    table = rest.partition("\n\n")[0]
    cells = [row.split(" | ") for row in re.findall(r"^\| (.+) \|$", table, re.MULTILINE)]
    return {name: said for name, *said in cells}


def places() -> Program:
    """Return the program with a canary in each place."""
    said = rows("place")
    planted = [
        Planted(canary.text, canary.place, _levels(said[canary.place], canary.kind))
        for canary in canaries.CANARIES
    ]
    file = f"{canaries.HOME}/{canaries.CWD}/{canaries.FILE}.py"
    text = f"""# {canaries.TYPED[0]} password = '{canaries.TYPED[1]}'
import runpy; runpy.run_path({f"{canaries.FILE}.py"!r}, run_name="__main__")"""
    command = ("-c", text, *canaries.ARGUMENTS)
    environment = {**canaries.ENVIRONMENT, "USER": canaries.USER, "HOME": canaries.HOME}
    return Program("places", {file: canaries.PROGRAM}, command, environment, planted)


def _levels(said: Sequence[str], kind: str) -> frozenset[str]:
    kept = ("stays",) if kind in (canaries.NAMED, canaries.FORM) else ("stays", "secrets go")
    return frozenset(level for level, cell in zip(LEVELS, said, strict=True) if cell in kept)


def named() -> Program:
    """Return the program that names its secrets in each way."""
    said = rows("way")
    planted = []
    for secret in ways.SECRETS:
        default, everything = (cell == "stays" for cell in _cells(said[secret.way], secret.kind))
        at = zip(LEVELS, (True, default, everything), strict=True)
        stays = frozenset(level for level, kept in at if kept)
        planted.append(Planted(secret.text, f"{secret.way}: {secret.kind}", stays))
    words = {f"w{number}": secret.text for number, secret in enumerate(ways.SECRETS)}
    files = {"program.py": ways.program(), ways.FILE: json.dumps({**words, "first": "yes"})}
    return Program("ways", files, ("program.py",), {}, planted)


def _cells(row: Sequence[str], kind: str) -> tuple[str, str]:
    mixed, letters, everything = row
    return (mixed if kind == ways.MIXED else letters), everything


def record(program: Program, work: Path, level: str, mode: str) -> Path:
    """Record a program in a folder of its own; return the folder with what came of it."""
    sources, made = work / "sources", work / "made"
    for name, text in program.files.items():
        file = sources / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    made.mkdir(parents=True)
    folder = file.parent
    environment = {
        **os.environ, **programs.ENVIRONMENT, **program.environment,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    if "HOME" in program.environment:
        environment["HOME"] = str(sources / program.environment["HOME"])
    command = (
        *_TORCHREEL, "record", "--redact", level, "--mode", mode, "--frames", "all",
        "-o", str(made / "run.db"), "--", sys.executable, *program.command,
    )  # fmt: skip
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return made


def products(made: Path) -> None:
    """Write what the commands make of a recording; a command may refuse what it can't write."""
    store = str(made / "run.db")
    compiles = json.loads(_said("ls", store, "--json", into=made / "ls.json"))
    _said("export", store, "--format", "torch-trace", "-o", str(made / "trace"))
    _said("report", store, "-o", str(made / "page.html"), "--max-size", "200M")
    for view in _VIEWS:
        select = f"SELECT * FROM {view}"
        _said("query", store, select, "--format", "json", into=made / f"{view}.json")
    failed = [one for one in compiles if one["status"] == "failed"]
    for number, one in enumerate(failed[:_SOME]):
        for option in ("--json", "--traceback", "--events"):
            _said("show", one["address"], option, into=made / f"show-{number}{option}")
    for number, one in enumerate(one for one in failed if one["backend"] == "inductor"):
        _said("export", one["address"], "-o", str(made / f"repro-{number}"), "--checks", "1")


def _said(*words: str, into: Path | None = None) -> str:
    done = subprocess.run([*_TORCHREEL, *words], capture_output=True, text=True, check=False)
    if into is not None:
        into.write_text(done.stdout)
    return done.stdout


def main(words: Sequence[str]) -> int:
    """Record, write, search and print; returns 1 if something is found that should not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.canaries")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--level", action="append", choices=LEVELS)
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--store-only", action="store_true", help="nothing is made of a recording")
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        work = chosen.work or Path(temporary)
        levels, modes = chosen.level or LEVELS, chosen.mode or MODES
        found = [
            examined(
                program, work / f"{program.name}-{level}-{mode}", level, mode, chosen.store_only
            )
            for program in (places(), named())
            for level in levels
            for mode in modes
        ]
    return report(found)


class Examined(NamedTuple):
    """What was found of a program's canaries: files by canary."""

    program: Program
    level: str
    mode: str
    found: Mapping[str, Iterable[str]]

    @property
    def leaks(self) -> list[tuple[Planted, Iterable[str]]]:
        """Canaries that are found though their table says that they go."""
        return [
            (one, self.found[one.text])
            for one in self.program.planted
            if one.text in self.found and self.level not in one.stays
        ]


def examined(program: Program, work: Path, level: str, mode: str, store_only: bool) -> Examined:
    """Record a program unless it is recorded, and look for its canaries."""
    made = work / "made"
    if not made.exists():
        made = record(program, work, level, mode)
        if mode == "full" and not store_only:
            products(made)
    found = Search(one.text for one in program.planted).found(contents(made))
    files = len([file for file in made.rglob("*") if file.is_file()])
    print(f"{program.name} at {level}, {mode}: {len(found)} canaries in {files} files", flush=True)
    return Examined(program, level, mode, found)


def report(found: Sequence[Examined]) -> int:
    """Print found/planted by row and recording, and where a canary is that should not be."""
    for name in dict.fromkeys(one.program.name for one in found):
        _table([one for one in found if one.program.name == name])
    leaks = [(one, *leak) for one in found for leak in one.leaks]
    for one, planted, files in leaks:
        print(f"LEAK at {one.level}, {one.mode}: {planted.row}: {planted.text} in {sorted(files)}")
    print(f"{len(leaks)} found where docs/redaction.md says that they go")
    return 1 if leaks else 0


def _table(found: Sequence[Examined]) -> None:
    planted = found[0].program.planted
    heads = [f"{one.level} {one.mode}" for one in found]
    print("\n" + " | ".join([f"{found[0].program.name:62}", *heads]))
    totals = Counter(one.row for one in planted)
    for row, total in totals.items():
        cells = []
        for one, head in zip(found, heads, strict=True):
            number = sum(canary.text in one.found for canary in planted if canary.row == row)
            leaked = any(canary.row == row for canary, _ in one.leaks)
            cells.append(f"{number}/{total}{'!' if leaked else ''}".rjust(len(head)))
        print(" | ".join([f"{row:62}", *cells]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
