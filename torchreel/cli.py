"""The command line: parses arguments, calls the library, prints by `commands`; exit statuses.

Lives here: the Typer application and the mapping of errors to exit statuses. Not here: any logic,
any formatting. Heavy modules are imported inside of the verbs, so that `ls` never imports torch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchreel.errors import TorchreelError, UsageError

if TYPE_CHECKING:
    from torchreel.store import Address, Store
    from torchreel.store.records import Compile

app = typer.Typer(
    name="torchreel",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=(
        "A flight recorder, a replayer and a reducer for torch.compile.\n\n"
        "Things in a store are addressed as run.db, run.db#2 (a recording), run.db#2/0/1 (a "
        "compile), run.db#2/0/1@417 (an event); left out, the latest failing compile of "
        "torchreel.db (or $TORCHREEL_STORE) is meant.\n\n"
        "Exit status: 0 done, 1 a true negative, 2 usage, 3 refused, 4 budget spent, 130 "
        "interrupted."
    ),
)

_PROGRAM = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}

AddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS", help="STORE[#RECORDING[/COMPILE][@EVENT]]", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]
ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import", metavar="MODULE", help="Import this module first (custom operators, backends)."
    ),
]
ChecksOption = Annotated[
    int, typer.Option("--checks", metavar="N", min=1, help="Run the exported script N times.")
]
ByCatchOption = Annotated[
    int | None,
    typer.Option("--by-catch", metavar="N", help="Another failure that a reduction met."),
]
CompareOption = Annotated[
    str,
    typer.Option(
        "--compare",
        metavar="HOW",
        help="default, close(RTOL, ATOL), exact, layout, or MODULE:FUNCTION of an --import.",
    ),
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Run code from the store: a program reduced from its frame.")
]
ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Overwrite what is there.")]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write.")
]


@app.command(context_settings=_PROGRAM)
def record(
    program: Annotated[list[str], typer.Argument(metavar="PROGRAM", show_default=False)],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="STORE", help="The store to append to.")
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", metavar="full|flight", help="Keep all, or what goes wrong.")
    ] = "full",
    compile_timeout: Annotated[
        float | None,
        typer.Option("--compile-timeout", metavar="SECONDS", help="Longer compiles count as hung."),
    ] = None,
    slow_compile: Annotated[
        float | None,
        typer.Option("--slow-compile", metavar="SECONDS", help="In flight mode: keep longer ones."),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option("--max-bytes", metavar="SIZE", help="Delete the oldest above this (500M)."),
    ] = None,
    max_age: Annotated[
        str | None, typer.Option("--max-age", metavar="AGE", help="Delete what is older (30d).")
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option("--sample", metavar="P", help="Keep only this share of the compiles."),
    ] = None,
    frames: Annotated[
        str | None,
        typer.Option(
            "--frames", metavar="failing|all|none", help="Keep Python frames, for replay."
        ),
    ] = None,
    redact: Annotated[
        str | None,
        typer.Option("--redact", metavar="default|all|none", help="What is taken out of text."),
    ] = None,
    redact_pattern: Annotated[
        list[str] | None,
        typer.Option("--redact-pattern", metavar="REGEX", help="Take this out as well."),
    ] = None,
    off_signal: Annotated[
        str | None,
        typer.Option("--off-signal", metavar="NAME", help="A signal that ends the recording."),
    ] = None,
) -> None:
    """Run a program and record every compile in it.

    As in 'torchreel record -o run.db -- python train.py': what follows '--' is run as it is, also
    where nothing can be recorded, and its exit status becomes ours. A store that exists gets
    another recording; '{rank}' and '{pid}' in its name are filled in by each process. A file
    STORE.off ends the recording, not the program. What is not said here is as the environment
    variables of recording say.
    """
    from torchreel.commands import record as console
    from torchreel.recorder.launch import record_program
    from torchreel.recorder.settings import Settings, parse_age, parse_size
    from torchreel.store.addressing import default_store

    target = output or default_store()
    settings = Settings.from_environment().changed(
        compile_timeout=compile_timeout,
        slow_compile=slow_compile,
        max_bytes=parse_size(max_bytes) if max_bytes is not None else None,
        max_age=parse_age(max_age) if max_age is not None else None,
        sample=sample,
        redact=redact,
        redact_patterns=tuple(redact_pattern) if redact_pattern else None,
        off_signal=off_signal,
        frames=frames,
    )
    known = console.last_recording(target)
    ended = record_program(program, target, mode, settings)
    console.end(target, known, ended)
    raise typer.Exit(ended.status)


@app.command()
def ls(
    address: AddressArgument = "",
    json: JsonOption = False,
    nl: Annotated[bool, typer.Option("--nl", help="Write JSON, one row a line.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Write tables (the default).")] = False,
) -> None:
    """List the recordings of a store and their compiles."""
    from torchreel.commands.ls import ls as print_listing
    from torchreel.commands.rendering import listing
    from torchreel.store import Store, parse

    kind = listing.chosen(json=json, nl=nl, csv=csv, table=table)
    where = parse(address)
    with Store.open(where.store) as store:
        print_listing(store, where, kind)


@app.command()
def show(
    address: AddressArgument = "",
    graph: Annotated[
        str | None,
        typer.Option("--graph", metavar="STAGE[:PARTITION]", help="Print the graphs of a stage."),
    ] = None,
    code: Annotated[bool, typer.Option("--code", help="Print the generated code.")] = False,
    events: Annotated[bool, typer.Option("--events", help="List what is on the tape.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Print the traceback.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what is known about a compile.

    Frame, stages, graphs, failure, config, environment, and what was lost. Nothing of the store is
    executed, imported or resolved, and torch is not imported.
    """
    from torchreel.commands.show import Wanted
    from torchreel.commands.show import show as print_compile
    from torchreel.store import Store, parse

    where = parse(address)
    with Store.open(where.store) as store:
        print_compile(store, where, Wanted(graph, code, events, traceback, json))


@app.command()
def report(
    address: AddressArgument = "",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    max_size: Annotated[
        str,
        typer.Option(
            "--max-size", metavar="SIZE", help="Leave out details of compiles above this."
        ),
    ] = "5M",
    force: ForceOption = False,
) -> None:
    """Write a page for a browser: every compile of a store, a recording or an address.

    Compiles by the user's stack, failures with what led to them, and of each compile the stages,
    the graphs with the line of the program, the node and the kernel that belong together, guards,
    symbols, graph breaks and config. One file, which asks no server for anything. Nothing of the
    store is executed, imported or resolved, and torch is not imported.
    """
    from torchreel.commands import report as console
    from torchreel.recorder.settings import parse_size
    from torchreel.store import Store, parse

    where = parse(address)
    console.refuse_overwriting(output, where, force=force)
    with Store.open(where.store) as store:
        console.report(store, where, output, parse_size(max_size))


@app.command()
def shapes(
    address: AddressArgument = "",
    at: Annotated[
        int | None, typer.Option("--at", metavar="EVENT", help="As it was right after this event.")
    ] = None,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option("--diff", metavar="EVENT EVENT", help="What changed between two events."),
    ] = None,
    env: Annotated[
        int | None,
        typer.Option("--env", metavar="N", help="Another ShapeEnv of the compile, by number."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the symbols of a compile as of any event.

    Value, range, replacement, source and the user's line of each, the guards and the deferred
    runtime asserts. Without an event, as they were at the end. Read from the tape: torch is not
    imported.
    """
    from torchreel.commands import shapes as console
    from torchreel.store import Store, parse

    where = parse(address)
    with Store.open(where.store) as store:
        if diff is not None:
            console.shapes_diff(store, where, diff, env, json)
        else:
            console.shapes(store, where, at, env, json)


@app.command()
def why(
    words: Annotated[list[str], typer.Argument(metavar="[ADDRESS] WHAT", show_default=False)],
    json: JsonOption = False,
) -> None:
    """Tell what led to a symbol, a guard, a recompile, a specialisation or a graph break.

    WHAT is a symbol (s77), a piece of a guard's code ("L['x'].size()[0]") or its type, an event
    (@417), or one of 'recompile', 'specialised' and 'graph-break'; these three are about the whole
    recording when ADDRESS names no compile. The answer is a chain of events, each with its address
    and the line of the program that it was for. Nothing is run again.
    """
    from torchreel.commands import why as console

    _why(*console.question(words), json)


@app.command("why-recompile")
def why_recompile(address: AddressArgument = "", json: JsonOption = False) -> None:
    """The same as 'why ADDRESS recompile'.

    Which guard of which cache entry did not hold, and for which line it was made.
    """
    _why_topic(address, "recompile", json)


@app.command("why-specialised")
def why_specialised(address: AddressArgument = "", json: JsonOption = False) -> None:
    """The same as 'why ADDRESS specialised'.

    Which event made a dynamic size static, and for which line.
    """
    _why_topic(address, "specialised", json)


@app.command("why-graph-break")
def why_graph_break(address: AddressArgument = "", json: JsonOption = False) -> None:
    """The same as 'why ADDRESS graph-break'.

    What could not be traced, with the user's stack and torch's hints.
    """
    _why_topic(address, "graph-break", json)


def _why_topic(address: str, topic: str, json: bool) -> None:
    from torchreel.store import parse

    _why(parse(address), topic, json)


def _why(where: Address, what: str, json: bool) -> None:
    from torchreel.commands.why import why as print_stories
    from torchreel.store import Store

    with Store.open(where.store) as store:
        print_stories(store, where, what, json)


@app.command()
def guards(
    address: AddressArgument = "",
    described: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="'NAME: WHAT'", help="An input, as in 'x: f32[4, 17]' or 'n: 5'."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the guards of a compile, or tell which of them an input would pass.

    Each '--input' describes one: a tensor by dtype and sizes, and where they are not the ordinary
    ones by 'strides [...]', a device, 'requires_grad', 'parameter'; anything else by its value.
    Without the model, what looks at anything but the described inputs is 'unknown', never 'pass'.
    Exits with 1 when a guard fails.
    """
    from torchreel.commands.guards import guards as print_guards
    from torchreel.store import Store, parse

    where = parse(address)
    with Store.open(where.store) as store:
        status = print_guards(store, where, described or (), json)
    raise typer.Exit(status)


@app.command()
def replay(
    address: AddressArgument = "",
    entry: Annotated[
        str | None,
        typer.Option(
            "--entry", metavar="frame|graph|aot|shapes", help="Where the replay starts (graph)."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Replay every compile of the recording or store.")
    ] = False,
    sequence: Annotated[
        bool, typer.Option("--sequence", help="Replay a recording's frames in order, as one.")
    ] = False,
    repeat: Annotated[
        int, typer.Option("--repeat", metavar="N", help="Replay N times: all have to agree.")
    ] = 1,
    allow: Annotated[
        str, typer.Option("--allow", metavar="CLASS,...", help="version, device.")
    ] = "",
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the store's frames; restore paths and commands.")
    ] = False,
    imports: ImportOption = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Limit of the child.")
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory", metavar="MIB", min=1, help="Memory of the child; else most of what is free."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="What if this config entry were so?"),
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="NAME", help="What if the backend were it?")
    ] = None,
    map_device: Annotated[
        list[str] | None,
        typer.Option("--map-device", metavar="OLD=NEW", help="What if the device were another?"),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="What if it were this environment's torch?"),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="STAGE[:PARTITION]", help="Stop where this stage begins."),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="EVENT", help="Stop right after this event.")
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Stop for a Python prompt.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compile again from a checkpoint and compare the tapes, event by event.

    In a fresh process, without the program that was recorded. Exits with 0 when all that was
    compared is identical, 1 when it diverged, 3 when it was refused; with --all, as the worst.
    What --allow names is set aside and reported: another version of torch, another machine or
    device. From a frame (recorded with --frames), or with --sequence, Dynamo itself is replayed:
    that runs code from the store, and needs --trust.

    With one thing changed (--config inductor.max_fusion_size=1, --backend aot_eager, --map-device
    cuda=cpu, --python OTHER/bin/python), the verdict says what that changed, event by event: exits
    with 0 when it changed nothing, 1 when it did.

    With --to lowering, or --at 417 (also as ADDRESS run.db#1/0/0@417), the replay goes as far as
    that and no further, and so does the comparison. With --interactive, there is a Python prompt at
    that point, or at the first event, with the live objects of the compiler; 'help' lists them.
    """
    from functools import partial

    from torchreel.commands import replay as console
    from torchreel.replay import replay as run
    from torchreel.replay.compare.travel import until
    from torchreel.replay.sequence import replay_sequence as frames
    from torchreel.replay.what_if import changes
    from torchreel.store import parse

    where = parse(address)
    goal = until(to, where.event if at is None else at, interactive=interactive)
    classes = tuple(filter(None, allow.split(",")))
    asked = changes(config or (), backend, map_device or (), python)
    if asked and (sequence or every or repeat != 1):
        raise UsageError("Only the replay of one compile can be changed, and once.")
    if goal and (sequence or every or repeat != 1):
        raise UsageError("Only the replay of one compile can be stopped on its way, and once.")
    if interactive and json:
        raise UsageError("A prompt and --json would mix on standard output: use one of them.")
    with _writable(where) as store:
        one = partial(
            run, store, trust=trust, imports=imports or (), timeout=timeout, allow=classes,
            memory=memory << 20 if memory else None,
            changes=asked, until=goal,
        )  # fmt: skip
        if sequence:
            again = partial(
                frames, trust=trust, imports=imports or (), timeout=timeout, allow=classes,
                memory=memory << 20 if memory else None,
            )  # fmt: skip
            status = console.replay_sequence(store, where.recording, again, json=json)
        elif every:
            console.refuse_repeats(repeat)
            status = console.replay_every(store, where.recording, entry, one, json=json)
        else:
            row = _compile(store, where)
            status = console.replay_one(
                store, row, entry or "graph", one, repeat, json=json, prompt=interactive
            )
    raise typer.Exit(status)


@app.command()
def diff(
    addresses: Annotated[
        list[str],
        typer.Argument(metavar="ADDRESS...", help="Two compiles, recordings or stores."),
    ],
    only: Annotated[
        str, typer.Option("--only", metavar="LAYER,...", help="Compare these layers alone.")
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Show every difference, not the first of each layer.")
    ] = False,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Compare the ranks of one job, in one store or more.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what sets two compiles, recordings or stores apart.

    Layer by layer: environment, machine, config, frame, symbols, graphs (whatever their nodes and
    symbols are called), guards, code, failure, and the first event in which the tapes part. Nothing
    is executed, and torch is not imported. Exits with 0 when there is no difference, 1 when there
    is one.

    With '--ranks', name the first compile, graph, guard, symbol or cache decision in which the
    ranks of a distributed job part.
    """
    from contextlib import ExitStack

    from torchreel.analysis.diff import diff as run
    from torchreel.analysis.diff import diff_ranks
    from torchreel.commands import diff as console
    from torchreel.store import Store, parse

    if not ranks and len(addresses) != 2:
        raise UsageError(f"A diff is between two addresses, not {len(addresses)}: name A and B.")
    places = [parse(text) for text in addresses]
    with ExitStack() as stack:
        sides = [(stack.enter_context(Store.open(where.store)), where) for where in places]
        if ranks:
            status = console.report_ranks(diff_ranks(sides), json=json)
        else:
            layers = [name.strip() for name in only.split(",") if name.strip()]
            status = console.report(run(sides[0], sides[1], layers), every=every, json=json)
    raise typer.Exit(status)


@app.command()
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
    by_catch: ByCatchOption = None,
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
    limit_time: Annotated[
        float | None, typer.Option("--limit-time", metavar="SECONDS", help="Stop after this long.")
    ] = None,
    limit_runs: Annotated[
        int | None, typer.Option("--limit-runs", metavar="N", help="Stop after N oracle runs.")
    ] = None,
    hang_after: Annotated[
        float | None,
        typer.Option(
            "--hang-after",
            metavar="SECONDS",
            help="End a run after this long: a hang is longer.",
        ),
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
) -> None:
    """Shrink a failure to a few lines, and export them.

    As a script that needs torch alone, and as the text of an issue. Only a case that fails with the
    recorded signature counts; other failures are listed as by-catch. Every verdict is kept in the
    store: an interrupted run goes on where it stopped.

    Nothing has to fail: '--predicate' shrinks a compile as long as something can be measured of it
    (compile_seconds, cpu_seconds, python_calls, memory, guards, recompiles, warnings, warning,
    kernels, code_lines, code), as in "guards > 40" or 'code ~ "regex"'; and what follows '--' is
    any command, as in 'torchreel minify run.db#1/0/0 -- ./check.sh'.
    """
    from torchreel.commands import minify as console
    from torchreel.minifier.export import ExportOptions, refuse_overwriting
    from torchreel.minifier.minify import minify as run
    from torchreel.minifier.options import Budget, MinifyOptions, RunLimits, usable_cores
    from torchreel.store import parse

    where = parse(address)
    limits = Budget(limit_time, limit_runs)
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
    with _own(_writable(where), output) as store:
        row = None if accuracy and where.compile is None else _compile(store, where)
        with console.watched(limits, accuracy=accuracy) as listener:
            chosen = MinifyOptions(
                imports=options.imports,
                trust=trust,
                limits=limits,
                explain=explain,
                other_failure=by_catch,
                comparator=compare,
                predicate=predicate,
                command=options.command,
                jobs=jobs or usable_cores(),
                bounds=RunLimits(hang_after),
            )
            reduction = run(store, row, accuracy=accuracy, options=chosen, listener=listener)
        raise typer.Exit(console.finish(store, reduction, options))


@app.command()
def bisect(
    address: AddressArgument = "",
    step: Annotated[
        str | None,
        typer.Option(
            "--step", metavar="STEP", help="Take this one step only, as in inductor:lowerings:3."
        ),
    ] = None,
    imports: ImportOption = None,
    limit_time: Annotated[
        float | None, typer.Option("--limit-time", metavar="SECONDS", help="Stop after this long.")
    ] = None,
    limit_runs: Annotated[
        int | None, typer.Option("--limit-runs", metavar="N", help="Stop after N oracle runs.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Find the part of the compiler that a failure comes from.

    First the backend (eager, aot_eager, aot_eager_decomp_partition, inductor), then the family of
    passes, the lowerings or decompositions of it, then which application of that part, then a
    config entry that cures. Runs the reduced case if there is one; only the recorded failure
    counts. Inductor's cache directory is not touched.

    Exits with 0 when it was found, 1 when the failure does not happen here. With --step, takes one
    step again, whatever is known of it: exits with 0 when the failure was there, 1 when not.
    """
    from torchreel.commands import bisect as console
    from torchreel.minifier.bisect import BisectStep, parse_step, take_step
    from torchreel.minifier.bisect import bisect as run
    from torchreel.minifier.options import Budget, MinifyOptions
    from torchreel.store import parse

    where = parse(address)
    options = MinifyOptions(imports=tuple(imports or ()), limits=Budget(limit_time, limit_runs))
    chosen = None if step is None else BisectStep() if step == "as-it-is" else parse_step(step)
    with _writable(where) as store:
        row = _compile(store, where)
        place = f"{store.target}#{row.place}"
        if chosen is not None:
            tried = take_step(store, row, chosen, options=options)
            raise typer.Exit(console.report_step(place, tried, json=json))
        found = run(store, row, options=options, on_step=console.told)
        raise typer.Exit(console.report(place, found, json=json))


@app.command()
def releases(
    address: AddressArgument = "",
    release: Annotated[
        list[str] | None,
        typer.Option("--release", metavar="VERSION", help="Try this one, as in 2.14 or 2.14.0."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="VERSION", help="Try all from this one on (2.12)."),
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option("--python", metavar="PATH", help="Try the torch of this environment."),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", min=1, help="Run N times under each release.")
    ] = 3,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Make environments that are missing, unasked.")
    ] = False,
    imports: ImportOption = None,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Find the release of torch that broke it, and the one that fixed it.

    The smallest case known (a reduced one if there is any, else the recorded one) runs as a script
    under each release, three times in fresh processes: the same failure, another one, no failure,
    or it can't be judged, with the reason. All releases are tried, for failures come back. What
    follows from it goes into the issue that 'export' writes.

    The releases are those since 2.12 and this environment's own, or those of --release, --since and
    --python. Their environments are made with pip in the user's cache when they are first needed,
    up to 7 GB each, after a question or with --yes; nothing else uses the network.

    Exits with 0 when a release shows the failure, 1 when none does.
    """
    from torchreel.commands import releases as console
    from torchreel.minifier.export.releases import SurveyOptions, releases_to_try, survey
    from torchreel.releases.environments import wanted_versions
    from torchreel.store import parse

    where = parse(address)
    wanted = wanted_versions(release or (), since, named=bool(python))
    options = SurveyOptions(runs, tuple(imports or ()), trust, console.say)
    with _writable(where) as store:
        row = _compile(store, where)
        tried = releases_to_try(wanted, python or (), console.permission(yes=yes), console.say)
        found = survey(store, row, tried, options)
        kept = store.writable
        status = console.report(f"{store.target}#{row.place}", found, json=json, kept=kept)
    raise typer.Exit(status)


@app.command()
def analyze(
    address: AddressArgument = "",
    compare: CompareOption = "default",
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture as an SVG.")
    ] = None,
    imports: ImportOption = None,
    trust: TrustOption = False,
    json: JsonOption = False,
) -> None:
    """Compare eager with compiled, node by node, and name the first node that is wrong.

    The last graph of a compile is run on invented inputs, in eager mode, in float64 and compiled.
    Exits with 1 when the results differ by more than rounding explains, 0 when they do not. Where
    they agree without a config entry or pass of the recorded compile, that is no answer: it exits
    with 3 and names what is missing.
    """
    from torchreel.commands.analyze import report
    from torchreel.minifier.accuracy.analyze import analyze as run
    from torchreel.store import Store, parse

    where = parse(address)
    with Store.open(where.store) as store:
        row = _compile(store, where)
        found = run(store, row, imports=imports or (), comparator=compare, trust=trust)
        status = report(f"{store.target}#{row.place}", found, as_json=json, svg=svg)
    raise typer.Exit(status)


@app.command()
def export(
    address: AddressArgument = "",
    output: OutputOption = Path("torchreel-repro"),
    kind: Annotated[
        str,
        typer.Option("--format", metavar="repro|issue|test|all|torch-trace", help="What to write."),
    ] = "all",
    by_catch: ByCatchOption = None,
    imports: ImportOption = None,
    checks: ChecksOption = 3,
    trust: TrustOption = False,
    force: ForceOption = False,
) -> None:
    """Write the best case known as a script, an issue and a test.

    A reduced one if there is any, else the recorded one. The script is run in fresh processes in
    which only torch can be imported, and so is the test; exits with 1 when the script does not show
    the recorded failure there.

    With '--format torch-trace', write what TORCH_TRACE would have written instead, for tlparse: of
    a compile, of a recording, or of every recording of a program.
    """
    from torchreel.store import Store, parse

    where = parse(address)
    if kind == "torch-trace":
        _export_trace(where, output, force)
        return
    from torchreel.commands import export as console
    from torchreel.commands.rendering import streams
    from torchreel.minifier.export import ExportOptions, export_other_failure
    from torchreel.minifier.export import export as run

    options = ExportOptions(
        output,
        console.formats(kind),
        force,
        tuple(imports or ()),
        checks=checks,
        trust=trust,
        say=streams.say,
    )
    with Store.open(where.store) as store:
        if by_catch is not None:
            exported = export_other_failure(store, by_catch, options)
            status = console.report(store.target, exported)
        else:
            row = _compile(store, where)
            exported = run(store, row, options)
            status = console.report(f"{store.target}#{row.place}", exported)
    raise typer.Exit(status)


def _export_trace(where: Address, output: Path, force: bool) -> None:
    from torchreel.commands import trace as console
    from torchreel.store import Store
    from torchreel.store.trace.export import export_trace

    with Store.open(where.store) as store:
        console.report_export(export_trace(store, where, output, force=force), output)


@app.command("import")
def import_(
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False)],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="STORE", help="The store to append to.")
    ] = None,
) -> None:
    """Read a directory that TORCH_TRACE filled into a store.

    Each log file becomes a recording of kind 'import', to be listed, shown and searched as any
    other; it has no checkpoints to replay from. What can't be read is counted as lost, and nothing
    of it is executed.
    """
    from torchreel.commands import trace as console
    from torchreel.recorder.trace_import import import_trace
    from torchreel.store.addressing import default_store

    target = output or default_store()
    console.report_import(import_trace(directory, target), target)


@app.command()
def doctor(
    store: Annotated[str | None, typer.Argument(metavar="STORE", show_default=False)] = None,
    json: JsonOption = False,
) -> None:
    """Look for everything that torchreel needs.

    Python, torch, the C++ compiler, the functions of torch that the recorder replaces, a writable
    store; exits with 1 when something is missing.
    """
    from torchreel.commands.doctor import report
    from torchreel.doctor import examine

    raise typer.Exit(report(examine(store), json=json))


def _writable(where: Address) -> Store:
    """The store of an address, for writing where that is possible."""
    from torchreel.errors import LockedStore
    from torchreel.store import Store

    try:
        return Store.open(where.store, write=True)
    except LockedStore:
        return Store.open(where.store)


def _own(store: Store, directory: Path) -> Store:
    """The store itself where it can be written to, else a copy of it in the directory."""
    if store.writable:
        return store
    from torchreel.commands.rendering import streams

    path = directory / Path(store.target).name
    streams.say(f"{store.target} can't be written to: verdicts go to a copy, {path}")
    with store:
        return store.copied(path)


def _compile(store: Store, where: Address) -> Compile:
    from torchreel.store import queries

    return queries.compile_at(store, where)


def main() -> None:
    """Run the command line; every error on purpose is one sentence and its exit status."""
    try:
        app()
    except TorchreelError as error:
        from torchreel.commands.rendering import streams

        kind = "usage" if isinstance(error, UsageError) else "torchreel"
        streams.say_block(f"{kind}: {error}")
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
