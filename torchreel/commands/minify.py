"""`torchreel minify`: shrink a failure and export it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchreel.commands.options import (
    AddressArgument,
    ChecksOption,
    CompareOption,
    ForceOption,
    ImportOption,
    OtherFailureOption,
    OutputOption,
    RunLimitOption,
    SearchTimeOption,
    TrustOption,
    seconds_option,
)
from torchreel.commands.stores import writable_copy, writable_store
from torchreel.errors import UsageError


def minify(
    address: AddressArgument = "",
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="Judges a script, whose path it gets: 0 interesting, 125 can't judge, else not.",
        ),
    ] = None,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Look for a wrong result: eager against compiled.")
    ] = False,
    other_failure: OtherFailureOption = None,
    compare: CompareOption = "default",
    predicate: Annotated[
        str | None,
        typer.Option(
            "--predicate", metavar="TEXT", help="Look for this, as in 'compile_seconds > 5'."
        ),
    ] = None,
    imports: ImportOption = None,
    trust: TrustOption = False,
    output: OutputOption = Path("torchreel-repro"),
    limit_time: SearchTimeOption = None,
    limit_runs: RunLimitOption = None,
    hang_after: Annotated[
        float | None,
        seconds_option("--hang-after", "End a run after this long: a hang is longer."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", metavar="N", min=0, help="Run N cases at a time (0: one per core)."
        ),
    ] = 1,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain/--no-explain",
            help="Look for a workaround, and for what does not matter, in 40 runs at most.",
        ),
    ] = True,
    checks: ChecksOption = 3,
    force: ForceOption = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="ALL|GROUP",
            help="Reduce each group of 'triage', or the one of an id or a signature.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="ray", help="With --group: reduce groups on a Ray cluster."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="HOST:PORT", help="The Ray cluster; this machine otherwise."
        ),
    ] = None,
) -> None:
    """Shrink a failure to a few lines, and export them.

    As a script that needs torch alone, and as the text of an issue. Only a case that fails with the
    recorded signature counts; other failures are listed at the end. Every verdict is kept in the
    store: an interrupted run goes on where it stopped.

    Nothing has to fail: '--predicate' shrinks a compile as long as something can be measured of it
    (compile_seconds, cpu_seconds, python_calls, memory, guards, recompiles, warnings, warning,
    kernels, code_lines, code), as in "guards > 40" or 'code ~ "regex"'; and what follows '--' is
    any command, as in 'torchreel minify run.db#1/0/0 -- ./check.sh'.

    With '--group ALL', the smallest failure of each group of 'torchreel triage' is reduced, and
    exported into a folder of its own. Groups whose reduction came to its end are left out, so the
    same command goes on after Ctrl-C. '--on ray' reduces as many at a time as the cluster has
    cores; each result is that of one worker.
    """
    if group is not None:
        if command or accuracy or other_failure is not None or predicate is not None:
            raise UsageError(
                "--group reduces recorded failures: leave out --accuracy, --other-failure, "
                "--predicate and the command after '--'."
            )
    elif on is not None or cluster is not None:
        raise UsageError("--on and --address say where groups are reduced: they need --group.")
    from torchreel.commands.views import minify as view
    from torchreel.minifier.minify import minify as run
    from torchreel.minifier.options import Budget, MinifyOptions, RunLimits, usable_cores
    from torchreel.minifier.repro.export import ExportOptions, refuse_overwriting
    from torchreel.store import Store, parse, queries

    where = parse(address)
    Store.open(where.store).close()  # the first thing to say of one that is not there
    limits = Budget(limit_time, limit_runs)
    chosen = MinifyOptions(
        imports=tuple(imports or ()),
        trust=trust,
        limits=limits,
        explain=explain,
        other_failure=other_failure,
        comparator=compare,
        predicate=predicate,
        command=tuple(command or ()),
        jobs=jobs or usable_cores(),
        bounds=RunLimits(hang_after),
    )
    if group is not None:
        from torchreel.commands.groups import GroupOptions, minify_groups

        of_groups = GroupOptions(group, output, force, checks, on, cluster)
        raise typer.Exit(minify_groups(where, of_groups, chosen))
    options = ExportOptions(
        output,
        force=force,
        imports=tuple(imports or ()),
        command=tuple(command or ()),
        checks=checks,
        trust=trust,
        hang_after=hang_after,
    )
    refuse_overwriting(options)
    store, where = writable_copy(writable_store(where), output, where)
    with store:
        row = None if accuracy and where.compile is None else queries.compile_at(store, where)
        with view.watched(limits) as listener:
            reduction = run(store, row, accuracy=accuracy, options=chosen, listener=listener)
        raise typer.Exit(view.finish(store, reduction, options))
