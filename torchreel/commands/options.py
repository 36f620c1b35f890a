"""Arguments and options that several verbs share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from torchreel.errors import UsageError

_LARGEST = 2**63 - 1
"""SQLite's integers end here."""
_LONGEST = 1e9
"""Seconds that a limit may have at most, thirty years: the kernel's clocks end somewhere."""


def _seconds(parameter: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse what is no time: Click takes `nan`, which is neither too small nor too large."""
    if value is not None and not 0 < value <= _LONGEST:
        raise UsageError(
            f"{parameter.opts[0]} is a number of seconds, above 0 and up to {_LONGEST:.0f}, "
            f"not {value:g}."
        )
    return value


def seconds_option(name: str, help: str) -> Any:
    """Return an option that takes a time in seconds."""
    return typer.Option(name, metavar="SECONDS", help=help, callback=_seconds)


def _number(parameter: typer.CallbackParam, value: int | None) -> int | None:
    if value is not None and not 0 <= value <= _LARGEST:
        raise UsageError(f"No store has anything of the number that {parameter.opts[0]} says.")
    return value


def number_option(name: str, metavar: str, help: str) -> Any:
    """Return an option that takes the number of an event, or of anything else in a store."""
    return typer.Option(name, metavar=metavar, help=help, callback=_number)


def without_password(value: Any) -> Any:
    """Return a URL or several as they may be shown."""
    from torchreel.store.passwords import hidden

    if isinstance(value, list):
        return [hidden(each) for each in value]
    return hidden(value) if isinstance(value, str) else value


AddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS", help="STORE[#RECORDING[/COMPILE][@EVENT]]", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]
LinesOption = Annotated[bool, typer.Option("--nl", help="Write JSON, one row a line.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Write CSV.")]
TableOption = Annotated[bool, typer.Option("--table", help="Write tables (the default).")]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="STORE", help="The store to append to.", callback=without_password
    ),
]
StoresArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STORE", help="Paths or URLs.", show_default=False, callback=without_password
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write.")
]
ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Overwrite what is there.")]
ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import", metavar="MODULE", help="Import this module first (custom operators, backends)."
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Run code: the frames of the store, or the recorded program itself."
    ),
]
ChecksOption = Annotated[
    int, typer.Option("--checks", metavar="N", min=1, help="Run the exported script N times.")
]
OtherFailureOption = Annotated[
    int | None,
    number_option("--other-failure", "N", "Another failure that a reduction met."),
]
CompareOption = Annotated[
    str,
    typer.Option(
        "--compare",
        metavar="HOW",
        help="Comparator of values, as exact or close(RTOL, ATOL); an unknown one lists them all.",
    ),
]
TimeLimitOption = Annotated[float | None, seconds_option("--limit-time", "Stop after this long.")]
SearchTimeOption = Annotated[
    float | None,
    seconds_option("--limit-time", "Begin no oracle run after this long; one under way ends."),
]
RunLimitOption = Annotated[
    int | None, typer.Option("--limit-runs", metavar="N", min=1, help="Stop after N oracle runs.")
]


def print_version(asked: bool) -> None:
    """Print the versions of torchreel, torch and Python, and end; torch is not imported."""
    if asked:
        import platform
        from importlib import metadata

        from torchreel import __version__

        torch = next((d.version for d in metadata.distributions(name="torch")), "none")
        print(f"torchreel {__version__}, torch {torch}, Python {platform.python_version()}")
        raise typer.Exit
