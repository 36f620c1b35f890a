"""`torchreel bisect`: each step as it is taken, then the guilty part, and how to see it again."""

from __future__ import annotations

from torchreel.commands.rendering import listing, streams
from torchreel.commands.rendering.text import count, shortened
from torchreel.escaping.shell import command, with_variables
from torchreel.minifier.bisect import Bisection, BisectStep, StepResult
from torchreel.store.documents.jsontypes import Json


def show_step(tried: StepResult) -> None:
    """Print a step for the person who waits."""
    streams.say(f"  {_verdict(tried):<9} {tried.step.in_words()}")


def _verdict(tried: StepResult) -> str:
    if tried.fails:
        return "fails"
    words = {"none": "passes", "other": "otherwise", "invalid": "invalid"}
    return words.get(tried.verdict, "unjudged")


def report(address: str, found: Bisection, *, json: bool) -> int:
    """Print a bisection; returns the exit status."""
    if json:
        listing.write_json(_as_json(address, found))
        return 0
    table = streams.table("step", "failure", "to repeat it")
    for tried in found.tried:
        streams.add_row(table, tried.step.in_words(), _verdict(tried), _again(address, tried.step))
    streams.show(table)
    streams.result()
    streams.result(found.in_words(), style="bold")
    for label, step in (("passes", found.passing), ("fails", found.failing)):
        if step is not None:
            streams.result(f"  {label:<8} {step.in_words()}")
            _print_without_us(step)
    if found.cure:
        streams.result(f"  cured by {found.cure}")
    _print_next(address, found)
    return 0


def _print_without_us(step: BisectStep) -> None:
    """Print the same with torch alone, which reads these variables."""
    if step.variables():
        words = with_variables(step.variables(), "python", "repro.py")
        streams.result(f"           {words}")


def _again(address: str, step: BisectStep) -> str:
    if step == BisectStep():
        return command("torchreel", "bisect", address, "--step", "as-it-is")
    return command("torchreel", "bisect", address, "--step", str(step))


def _print_next(address: str, found: Bisection) -> None:
    effort = f"{count(found.runs, 'oracle run')}, on {count(found.call_nodes, 'call node')}"
    streams.say(effort if found.reduced else f"{effort} (not reduced: 'minify' makes this faster)")
    streams.next_command("torchreel", "export" if found.reduced else "minify", address)


def _as_json(address: str, found: Bisection) -> Json:
    steps: list[Json] = [
        {
            "step": str(tried.step) if tried.step != BisectStep() else "as-it-is",
            "told": tried.step.in_words(),
            "failure": _verdict(tried),
            "verdict": tried.verdict,
            "detail": tried.detail,
            "command": _again(address, tried.step),
            "environment": tried.step.variables(),
        }
        for tried in found.tried
    ]
    return {
        "component": found.in_words(),
        "backend": found.backend,
        "part": found.part or None,
        "number": found.number,
        "application": found.application or None,
        "cure": found.cure or None,
        "passing": str(found.passing) if found.passing is not None else None,
        "failing": str(found.failing),
        "steps": steps,
        "runs": found.runs,
        "call_nodes": found.call_nodes,
        "reduced": found.reduced,
    }


def report_step(address: str, tried: StepResult, *, json: bool) -> int:
    """Print one step; returns the exit status: 0 when the failure is there."""
    status = 0 if tried.fails else 1
    if json:
        fields: Json = {
            "step": str(tried.step), "failure": _verdict(tried), "verdict": tried.verdict,
            "detail": tried.detail,
        }  # fmt: skip
        listing.write_json(fields)
        return status
    streams.result(f"{_verdict(tried)}: {tried.step.in_words()}", style="bold")
    if tried.detail:
        streams.result(f"  {shortened(tried.detail, 200)}")
    streams.next_command("torchreel", "bisect", address)
    return status
