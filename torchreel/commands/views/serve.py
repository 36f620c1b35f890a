"""`torchreel serve`: the address to open, and the end."""

from __future__ import annotations

import os
from contextlib import suppress

from torchreel.commands.rendering import failure, streams
from torchreel.escaping.shell import command
from torchreel.report.serving import LiveReport, ReportServer
from torchreel.store import Store
from torchreel.store.addressing import Address
from torchreel.store.records import Compile

_NICE = 10
"""The program that is recorded goes first."""


def serve(address: Address, port: int) -> None:
    """Serve a report until the user interrupts.  Raises UsageError where the port can't be had."""
    report = LiveReport(address, _next_of)
    report.document()  # what is no store is said now
    with ReportServer(report, port) as server:
        os.nice(_NICE)
        streams.result(f"serving {address} on {server.url}")
        streams.say("open it in a browser on this machine; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _next_of(store: Store, compile: Compile) -> str:
    return command(*failure.next_words(store, compile))
