"""`torchreel serve`: the address to open, and the end."""

from __future__ import annotations

import os
from contextlib import suppress

from torchreel.commands.rendering import failure, streams
from torchreel.report.serving import LiveReport, ReportServer
from torchreel.store.addressing import Address

_NICE = 10
"""The program that is recorded goes first."""


def serve(address: Address, port: int) -> None:
    """Serve a report until the user interrupts.  Raises UsageError where the port can't be had."""
    report = LiveReport(address, failure.next_command)
    report.document()  # what is no store is said now
    with ReportServer(report, port) as server:
        os.nice(_NICE)
        streams.result(f"serving {address} on {server.url}")
        streams.say("open it in a browser on this machine; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
