"""`torchreel record`: run a program and record every compile in it."""

from __future__ import annotations

from typing import Annotated

import typer

from torchreel.commands.options import StoreOption


def record(
    program: Annotated[list[str], typer.Argument(metavar="PROGRAM", show_default=False)],
    output: StoreOption = None,
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
    from torchreel.commands.views import record as view
    from torchreel.recorder.launch import record_program, settings_of
    from torchreel.recorder.settings import parse_age, parse_size
    from torchreel.store.addressing import default_store

    target = output or default_store()
    settings, problem = settings_of(
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
    known = view.last_recording(target)
    ended = record_program(program, target, mode, settings, problem=problem)
    view.end(target, known, ended)
    raise typer.Exit(ended.status)
