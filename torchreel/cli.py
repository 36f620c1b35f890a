"""The command line application: mounts the verbs and maps errors to exit statuses.

Lives here: the Typer application. Not here: the verbs themselves (`torchreel.commands`).
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from torchreel.commands.analyze import analyze
from torchreel.commands.audit import audit
from torchreel.commands.bisect import bisect
from torchreel.commands.diff import diff
from torchreel.commands.doctor import doctor
from torchreel.commands.export import export
from torchreel.commands.guards import guards
from torchreel.commands.import_ import import_
from torchreel.commands.ls import ls
from torchreel.commands.minify import minify
from torchreel.commands.options import print_version
from torchreel.commands.prepare import prepare
from torchreel.commands.prune import prune
from torchreel.commands.push import push
from torchreel.commands.query import query
from torchreel.commands.recheck import recheck
from torchreel.commands.record import record
from torchreel.commands.releases import releases
from torchreel.commands.replay import replay
from torchreel.commands.report import report
from torchreel.commands.serve import serve
from torchreel.commands.shapes import shapes
from torchreel.commands.share import share
from torchreel.commands.show import show
from torchreel.commands.triage import triage
from torchreel.commands.why import why, why_graph_break, why_recompile, why_specialised
from torchreel.errors import TorchreelError, UsageError

app = typer.Typer(
    name="torchreel",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=(
        "A flight recorder, a replayer and a reducer for torch.compile.\n\n"
        "Things in a store are addressed as run.db, run.db#2 (a recording), run.db#2/0/1 (a "
        "compile), run.db#2/0/1@417 (an event); left out, the latest failing compile of "
        "torchreel.db (or $TORCHREEL_STORE) is meant.\n\n"
        "Exit status: 0 done, 1 not found or different, 2 usage, 3 refused, 4 budget spent, 130 "
        "interrupted."
    ),
)


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the versions and exit."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a verb."""


# What follows the first word is another program's, with options of its own.
_PROGRAM = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}

# In the order of 'torchreel --help'.
app.command(context_settings=_PROGRAM)(record)
app.command()(ls)
app.command()(show)
app.command()(report)
app.command()(serve)
app.command()(shapes)
app.command()(why)
app.command("why-recompile")(why_recompile)
app.command("why-specialised")(why_specialised)
app.command("why-graph-break")(why_graph_break)
app.command()(guards)
app.command()(replay)
app.command()(diff)
app.command()(minify)
app.command()(bisect)
app.command()(releases)
app.command()(triage)
app.command()(recheck)
app.command()(query)
app.command()(analyze)
app.command()(export)
app.command()(share)
app.command()(audit)
app.command("import")(import_)
app.command()(prepare)
app.command()(push)
app.command()(prune)
app.command()(doctor)


def main() -> None:
    """Run the command line, and print every `TorchreelError` in one sentence."""
    _prepare_streams()
    try:
        app()
    except TorchreelError as error:
        from torchreel.commands.rendering import streams

        kind = "usage" if isinstance(error, UsageError) else "torchreel"
        streams.say_block(f"{kind}: {error}")
        sys.exit(error.exit_status)
    except SystemExit as ended:
        if _is_interrupt(ended):
            from torchreel.commands.rendering import streams

            streams.say("interrupted")
            streams.same_command()
        raise


def _prepare_streams() -> None:
    """Write to nowhere where a stream is closed, and spell out characters that one can't have."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_interrupt(ended: SystemExit) -> bool:
    """Return True if Ctrl-C ended this process, and not one whose exit status it passes on."""
    error: BaseException | None = ended
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


if __name__ == "__main__":
    main()
