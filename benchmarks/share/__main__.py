"""Whether `torchreel share` lets any of 1,000 canaries out, and whether its bundles still fail.

    python -m benchmarks.share [--work FOLDER] [--variants N] [NAME ...]

Some sixty programs that fail, full of names, texts and numbers that occur nowhere else, are
recorded and shared.  No canary may be in any byte of any bundle, unpacked, in upper or lower case,
hexadecimal or base64; `audit` has to find each one that the recording holds, and nothing in a
bundle; and 95 % of the bundles have to fail with the recorded signature in a process of their own.
What is in FOLDER already is not made again.  Half an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.share import recordings
from benchmarks.share.canaries import Canary, contents, found_in
from benchmarks.share.programs import VARIANTS, Planted, programs
from torchreel.errors import TorchreelError
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.sharing.audit.audit import audit
from torchreel.sharing.share import ShareOptions, share
from torchreel.store import Store, queries
from torchreel.store.failures.signature import Signature

_ENOUGH = 0.95


def main(words: Sequence[str]) -> int:
    """Record, share and search; returns 1 if one of the three promises is broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.share")
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--work", type=Path, default=Path("share-recordings"))
    parser.add_argument("--variants", type=int, default=VARIANTS)
    chosen = parser.parse_args(words)
    wanted = [
        one
        for one in programs(chosen.variants)
        if not chosen.names or any(name in one.variant.name for name in chosen.names)
    ]
    recordings.record(chosen.work, wanted)
    everything = {
        f"{one.variant.name} {key}": canary
        for one in wanted
        for key, canary in one.canaries.items()
    }
    nothing = Signature("exception", "codegen", message="nothing fails like this")
    with WorkerOracle(nothing) as oracle:
        rows = [_one(chosen.work / one.variant.name, one, everything, oracle) for one in wanted]
    return _report([row for row in rows if row is not None], len(everything))


def _one(
    place: Path, planted: Planted, everything: Mapping[str, Canary], oracle: WorkerOracle
) -> dict[str, object] | None:
    """Return what came of one program; None where it did not fail."""
    known = place / "result.json"
    if known.exists():
        found: dict[str, object] | None = json.loads(known.read_text())
        return found
    row = _measured(place, planted, everything, oracle)
    known.write_text(json.dumps(row))
    return row


def _measured(
    place: Path, planted: Planted, everything: Mapping[str, Canary], oracle: WorkerOracle
) -> dict[str, object] | None:
    store = place / recordings.STORE
    with Store.open(store) as opened:
        if queries.latest_failing(opened) is None:
            print(f"{planted.variant.name}: does not fail")
            return None
    began = time.monotonic()
    held = found_in(contents(store), planted.canaries)
    seen = {key: planted.canaries[key] for key in held}
    said = "\n".join(f"{one.place} {one.text}" for one in audit(store).findings).lower()
    missed = [key for key, canary in seen.items() if not _is_told(canary, said)]
    row: dict[str, object] = {
        "name": planted.variant.name, "held": len(held), "missed": missed, "leaked": [],
        "verified": False, "how": "", "needed": [], "findings": 0,
    }  # fmt: skip
    bundle = place / "bundle.db"
    try:
        shared = share(str(store), bundle, options=ShareOptions(bundle, force=True), oracle=oracle)
        row |= {
            "verified": shared.verification.holds,
            "how": shared.verification.how,
            "needed": list(shared.leaving.needed),
            "findings": len(audit(bundle).findings),
            "leaked": found_in(contents(bundle), everything),
            "runs": shared.numbers.runs,
            "bytes": bundle.stat().st_size,
        }
    except TorchreelError as error:
        row["how"] = f"not written: {error}"
    row["seconds"] = round(time.monotonic() - began)
    print(json.dumps(row), flush=True)
    return row


def _is_told(canary: Canary, said: str) -> bool:
    """Return True if a finding has the canary: a number also as float32 rounds it."""
    if isinstance(canary, float):
        import struct

        single = struct.unpack("<f", struct.pack("<f", canary))[0]
        forms = [repr(canary), repr(single)[:12], float.hex(canary)[4:12], float.hex(single)[4:10]]
        return any(form in said for form in forms)
    return str(canary).lower() in said


_WITHOUT_GRAPH = ("There is no graph to share", "The failure is Dynamo's own")
_OF_THE_PROGRAM = ("alias_of_input", "pass_fails", "trap_pass", "trap_steps")
"""Programs whose own operator or pass is what fails, and whose own loop has no end: code of theirs
does not leave."""


def _report(rows: list[dict[str, object]], canaries: int) -> int:
    dynamo = [row for row in rows if any(text in str(row["how"]) for text in _WITHOUT_GRAPH)]
    own = [row for row in rows if str(row["name"]).startswith(_OF_THE_PROGRAM)]
    own_refused = sum(not row["verified"] for row in own)
    refused = len(dynamo) + own_refused
    print(
        f"{len(rows)} programs that fail; refused: {len(dynamo)} failures of Dynamo's own, "
        f"{own_refused} of {len(own)} of the program's own code"
    )
    verified = sum(bool(row["verified"]) for row in rows)
    leaked = [f"{row['name']}: {row['leaked']}" for row in rows if row["leaked"]]
    missed = [f"{row['name']}: {row['missed']}" for row in rows if row["missed"]]
    unclean = [str(row["name"]) for row in rows if row["findings"]]
    alone = sum(
        "torch alone" in str(row["how"]) and "not as" not in str(row["how"]) for row in rows
    )
    held = sum(int(str(row["held"])) for row in rows)
    print(f"{canaries} canaries in {len(rows)} programs that fail; {held} are in their recordings")
    print(f"bundles with a canary in them: {len(leaked)} {leaked[:5]}")
    print(f"canaries of the recordings that audit did not find: {len(missed)} {missed[:5]}")
    print(f"bundles in which audit finds something: {len(unclean)} {unclean[:5]}")
    print(
        f"bundles that fail with the same signature: {verified} of {len(rows) - refused} "
        f"({alone} of them as a script with torch alone)"
    )
    needed = sorted({str(one) for row in rows for one in row["needed"]})  # type: ignore[union-attr]
    print(f"numbers that leave because a failure needs them: {needed}")
    for row in rows:
        if not row["verified"]:
            print(f"  {row['name']}: {row['how']}")
    enough = bool(rows) and verified >= _ENOUGH * (len(rows) - refused)
    return 0 if enough and not leaked and not missed and not unclean and canaries >= 1000 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
