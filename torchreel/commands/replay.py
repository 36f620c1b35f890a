"""`torchreel replay`: compile again from a checkpoint and compare."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import (
    AddressArgument,
    ImportOption,
    JsonOption,
    number_option,
    seconds_option,
)
from torchreel.commands.stores import writable_store
from torchreel.errors import UsageError


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
        int, typer.Option("--repeat", metavar="N", min=1, help="Replay N times: all have to agree.")
    ] = 1,
    allow: Annotated[
        str, typer.Option("--allow", metavar="CLASS,...", help="version, device.")
    ] = "",
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the store's frames; restore paths and commands.")
    ] = False,
    imports: ImportOption = None,
    timeout: Annotated[float | None, seconds_option("--timeout", "Limit of the child.")] = None,
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
        int | None,
        number_option("--at", "EVENT", "Stop right after this event."),
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Stop for a Python prompt.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compile again from a checkpoint and compare.

    The events of the replay are compared with the recorded ones, one by one. It runs in a fresh
    process, without the program that was recorded. Exits with 0 when all that was compared is
    identical, 1 when it diverged, 3 when it was refused; with --all, as the worst. What --allow
    names is set aside and reported: another version of torch, another machine or device. From a
    frame (recorded with --frames), or with --sequence, Dynamo itself is replayed: that runs code
    from the store, and needs --trust.

    With one thing changed (--config inductor.max_fusion_size=1, --backend aot_eager, --map-device
    cuda=cpu, --python OTHER/bin/python), the verdict says what that changed, event by event: exits
    with 0 when it changed nothing, 1 when it did.

    With --to lowering, or --at 417 (also as ADDRESS run.db#1/0/0@417), the replay goes as far as
    that and no further, and so does the comparison. With --interactive, there is a Python prompt at
    that point, or at the first event, with the live objects of the compiler; 'help' lists them.
    """
    from functools import partial

    from torchreel.commands.views import replay as view
    from torchreel.replay import replay as run
    from torchreel.replay.compare.time_travel import until
    from torchreel.replay.sequence import replay_sequence as frames
    from torchreel.replay.what_if import changes
    from torchreel.store import parse, queries

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
    with writable_store(where) as store:
        queries.require(store, where)
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
            status = view.replay_sequence(store, where.recording, again, json=json)
        elif every:
            view.refuse_repeats(repeat)
            status = view.replay_every(store, where.recording, entry, one, json=json)
        else:
            row = queries.compile_at(store, where)
            status = view.replay_one(
                store, row, entry or "graph", one, repeat, json=json, prompt=interactive
            )
    raise typer.Exit(status)
