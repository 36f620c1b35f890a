"""`torchreel audit`: what should not leave, by place."""

from __future__ import annotations

import json as json_module
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict

from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import count
from torchreel.sharing.audit.audit import AuditFinding, AuditReport

_MOST_PLACES = 40
"""Places that are listed each by itself."""
_SHOWN = 5
_WIDTH = 100


def report(found: AuditReport, *, everything: bool, json: bool) -> int:
    """Print the findings; returns the exit status: 1 when there are any."""
    if json:
        document = {
            "file": found.target,
            "values": found.values,
            "declared": list(found.declared),
            "findings": [asdict(one) for one in found.findings],
        }
        streams.block(json_module.dumps(document, indent=1))
    else:
        _print(found, everything=everything)
    return 0 if found.is_clean else 1


def _print(found: AuditReport, *, everything: bool) -> None:
    groups: dict[tuple[str, str], list[AuditFinding]] = defaultdict(list)
    for one in found.findings:
        groups[one.place, one.kind].append(one)
    is_short = len(groups) <= _MOST_PLACES and not everything
    if is_short or everything:
        for (place, kind), rows in sorted(groups.items()):
            count_of = f", {len(rows)} of them" if len(rows) > 1 else ""
            _print_group(f"{place} ({kind}{count_of})", rows, everything=everything)
    else:
        _print_kinds(found.findings)
    if found.declared:
        streams.result(f"numbers that the failure needs: {', '.join(found.declared)}")
    looked = f"looked at {count(found.values, 'value')}"
    if found.is_clean:
        streams.result(f"{found.target}: nothing that should not leave ({looked})")
    else:
        streams.result(f"{found.target}: {count(len(found.findings), 'finding')} ({looked})")
        if not is_short and not everything:
            streams.same_command("--all")


def _print_kinds(findings: Sequence[AuditFinding]) -> None:
    """Print a few findings of each kind, for a file that has more places than anybody reads."""
    kinds: dict[str, list[AuditFinding]] = defaultdict(list)
    for one in findings:
        kinds[one.kind].append(one)
    for kind, rows in sorted(kinds.items(), key=lambda item: (item[0] != "secret", -len(item[1]))):
        places = count(len({row.place for row in rows}), "place")
        distinct = {row.text: row for row in rows}
        _print_group(f"{kind}: {len(rows)} in {places}", [*distinct.values()], everything=False)


def _print_group(title: str, rows: Sequence[AuditFinding], *, everything: bool) -> None:
    streams.result(title)
    for row in rows if everything else rows[:_SHOWN]:
        text = row.text if everything or len(row.text) <= _WIDTH else f"{row.text[:_WIDTH]}..."
        streams.result(f"  {text}")
    if not everything and len(rows) > _SHOWN:
        streams.result(f"  ... and {len(rows) - _SHOWN} more")
