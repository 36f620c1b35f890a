"""`torchreel doctor`: the findings as a table."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.commands.rendering import listing, streams
from torchreel.commands.rendering.text import count
from torchreel.doctor import Finding

_STYLES = {"missing": "red", "warning": "yellow"}


def report(findings: Sequence[Finding], *, json: bool) -> int:
    """Print the findings; returns the exit status: 1 when something that is needed is missing."""
    missing = [finding for finding in findings if finding.state == "missing"]
    if json:
        listing.write_json([dict(vars(finding)) for finding in findings])
    else:
        _print(findings)
    if missing:
        streams.say(f"{count(len(missing), 'thing')} missing; see above for what to do.", "red")
        streams.next_command("torchreel", "doctor")
    else:
        streams.say("Everything is here.")
        streams.next_command("torchreel", "record", "--", "python", "PROGRAM.py")
    return 1 if missing else 0


def _print(findings: Sequence[Finding]) -> None:
    table = streams.table("state", "what", "found")
    for finding in findings:
        style = _STYLES.get(finding.state, "")
        streams.add_row(table, finding.state, finding.what, finding.found, style=style)
        if finding.advice:
            streams.add_row(table, "", "", finding.advice, style=style)
    streams.show(table)
