"""Whether `torchreel triage` groups the failures of real bugs as the bugs do: precision, recall.

    python -m benchmarks.triage [--cases DIRECTORY] [--work FOLDER] [--minify N] ... [NAME ...]

Programs after public issues, and the files of a directory of cases, each with a model of its own
around the bug, other sizes, dtypes, spellings, names of files and ranks.  Each is recorded, and the
first N variants of each bug are minified, a minute each at most; what is in FOLDER already is not
made again.  A recording counts if it shows the failure that its bug is known for.  Then all
failures are grouped, and each pair of failures is one vote: it belongs together if both are of one
bug.  The same is asked of the signature alone, and of torch's own message.  The bugs that were
written down after the rules of the grouping are counted apart, and so are those that were made to
be merged: two programs with one name, one statement and one message.  What was asked for, of 40
bugs or more, is the row "known and held out".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.triage import measures, recordings
from benchmarks.triage.heldout_bugs import HELDOUT_BUGS
from benchmarks.triage.programs import VARIANTS, Variant, variants
from benchmarks.triage.trap_bugs import TRAP_BUGS


def main(words: Sequence[str]) -> int:
    """Make what is missing, and print the table; returns 1 if two bugs were merged."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.triage")
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--work", type=Path, default=Path("triage-recordings"))
    parser.add_argument("--variants", type=int, default=VARIANTS, help="of each bug, at most")
    parser.add_argument("--minify", type=int, default=VARIANTS, help="of these, at most")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", choices=("record", "minify", "measure"))
    chosen = parser.parse_args(words)
    found = [v for v in variants(chosen.cases) if _is_wanted(v, chosen.names)]
    found = [variant for variant in found if variant.number < chosen.variants]
    found.sort(key=lambda variant: variant.number)
    if chosen.only in (None, "record"):
        recordings.record(chosen.work, found)
    reduced = [variant for variant in found if variant.number < chosen.minify]
    if chosen.only in (None, "minify"):
        recordings.minify(chosen.work, reduced, chosen.seconds)
    return _measure(chosen.work, found) if chosen.only in (None, "measure") else 0


def _measure(work: Path, found: Sequence[Variant]) -> int:
    """Report the bugs that the rules were made with, those that came after, traps, and all."""
    of = {v: v.name.rpartition("-")[0] for v in found}
    held_out = [v for v in found if of[v] in HELDOUT_BUGS]
    traps = [v for v in found if of[v] in TRAP_BUGS]
    known = [v for v in found if v not in held_out and v not in traps]
    parts = (
        ("known", known),
        ("held out", held_out),
        ("known and held out", known + held_out),
        ("traps", traps),
        ("all", found),
    )
    merged = 0
    for title, some in parts:
        print(f"-- {title}: {len(some)} programs")
        merged |= measures.report(work, some) if some else 0
    return merged


def _is_wanted(variant: Variant, names: Sequence[str]) -> bool:
    return not names or any(name in variant.name for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
