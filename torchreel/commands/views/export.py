"""`torchreel export`: what was written, and whether it shows the failure."""

from __future__ import annotations

from pathlib import Path

from torchreel.commands.rendering import streams
from torchreel.escaping.characters import visible
from torchreel.minifier.repro import FORMATS, Exported
from torchreel.patterns import lazy_text

_MISSING = lazy_text(r"No module named '(\w+)")


def formats(name: str) -> tuple[str, ...]:
    """Return the formats that an option means: one of them, or all."""
    return tuple(FORMATS) if name == "all" else (name,)


def report(address: str, exported: Exported, *, is_last: bool = True) -> int:
    """Print the files, and the next command if nothing else follows.

    Returns the exit status: 1 when the script does not show the failure.
    """
    _print_script(exported)
    for path in exported.files:
        streams.result(f"wrote {path}")
    result = exported.check
    if not result.holds:
        streams.say(
            "The repro is NOT verified: run in a fresh process, it did not show the recorded "
            f"failure ({result.detail}).",
            style="bold red",
        )
        if missing := _MISSING.search(result.detail):
            streams.say(
                f"It imports {missing[1]}, and there torch alone can be imported: add --import "
                f"{missing[1]} where that belongs to the failure."
            )
        if exported.own_code:
            names = visible(", ".join(exported.own_code))
            streams.say(
                f"The case has code of the program's own, which the script lacks ({names}): put it "
                "at the top of the script."
            )
        if is_last:
            streams.next_command("torchreel", "show", address)
        return 1
    times = f"{exported.shown} of {exported.runs} runs" if exported.runs > 1 else "one run"
    streams.say(
        f"verified in a fresh process, with {_company(exported)}, in {times}: {result.detail}",
        style="green",
    )
    if exported.shown < exported.runs:
        rate = 100 * exported.shown / exported.runs
        streams.say(f"The repro is flaky: it fails in {rate:.0f} % of its runs.", style="yellow")
    if exported.test is not None and not exported.test.holds:
        streams.say(f"test_repro.py is NOT verified: {exported.test.detail}", style="bold red")
    if is_last:
        _print_next(exported.files)
    return 0


def _company(exported: Exported) -> str:
    """Return a phrase on the packages that the script could import."""
    modules = " and ".join(map(visible, exported.imports))
    company = f"torch and {modules}" if modules else "torch alone"
    return f"{company} on a GPU that stands in" if exported.check.stands_in else company


def _print_script(exported: Exported) -> None:
    """Print the script itself, where it is short enough to be read at once."""
    lines = exported.script.text.splitlines()
    if len(lines) <= 60:
        streams.block("\n".join(f"    {line}".rstrip() for line in lines))


def _print_next(files: tuple[Path, ...]) -> None:
    script = next((path for path in files if path.suffix == ".py"), None)
    if script is not None:
        streams.next_command("python", visible(script))
    else:
        streams.next_command("cat", visible(files[0]))
