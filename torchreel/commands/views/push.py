"""`torchreel push`: what was sent, what was not, and why."""

from __future__ import annotations

import json as json_format

from torchreel.commands.rendering import streams
from torchreel.commands.rendering.text import count
from torchreel.errors import StoreError
from torchreel.store.sending.push import PushReport


class PushPrinter:
    """Prints a line for each recording that was sent, and each reason for one that was not."""

    def __init__(self, to: str, *, json: bool) -> None:
        self._to, self._json = to, json
        self._refused: set[str] = set()
        self._sent = self._added = self._mended = 0
        self._known: dict[str, int] = {}
        self._running: dict[str, int] = {}
        self._waiting = ""

    def sent(self, source: str, number: int, new: int) -> None:
        """Print the address of a recording here and there."""
        self._sent += 1
        if self._json:
            streams.block(
                json_format.dumps({"from": f"{source}#{number}", "to": f"{self._to}#{new}"})
            )
        else:
            streams.result(f"{source}#{number} -> {self._to}#{new}")

    def pushed(self, source: str, report: PushReport) -> None:
        """Count the recordings of a store, and print the reason for each refused one, once."""
        self._added += report.added
        self._mended += report.mended
        self._known[source], self._running[source] = report.known, report.running
        for reason in report.refused:
            self._say_refused(f"{source}: {reason}")

    def refused(self, source: str, error: StoreError) -> None:
        """Print why a store can't be sent at all, once."""
        self._say_refused(str(error))

    def waiting(self, error: StoreError) -> None:
        """Print why the other store can't be written to, once."""
        if str(error) != self._waiting:
            self._waiting = str(error)
            streams.say(f"{error} It is tried again.", style="yellow")

    def _say_refused(self, reason: str) -> None:
        if reason not in self._refused:
            self._refused.add(reason)
            streams.say(f"not sent: {reason}", style="yellow")

    def finish(self) -> int:
        """Print the counts of the push; return the exit status."""
        known, running = sum(self._known.values()), sum(self._running.values())
        streams.say(f"{count(self._sent, 'recording')} sent, {known} there already.")
        if self._added:
            streams.say(f"{count(self._added, 'row')} added to recordings that were there.")
        if self._mended:
            streams.say(f"{count(self._mended, 'blob')} sent again, which it asked for.")
        if running:
            streams.say(f"{count(running, 'recording')} still running: push again later.")
        if self._sent:
            streams.next_command("torchreel", "triage", self._to)
        return 3 if self._refused else 0
