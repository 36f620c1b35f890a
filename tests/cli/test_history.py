"""`shapes`, `why` and `guards`, on programs whose story is known: what they say, to the line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

import torchreel
from tests.analysis import programs
from tests.analysis.programs import NAMES, code_of, line_of
from tests.cli.conftest import Result, Run
from tests.report.conftest import document_of
from tests.store import rows
from torchreel.analysis.guard_check.check import judge
from torchreel.commands.views import guards as view
from torchreel.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of every program."""
    path = tmp_path_factory.mktemp("history") / "run.db"
    with torchreel.record(path):
        programs.run()
    return path


def asked(run: Run, *words: object) -> Any:
    """The answer of a command as JSON."""
    result = run(*words, "--json")
    assert result.status in (0, 1), result.err
    return json.loads(result.out)


def at(store: Path, program: str) -> str:
    """The address of a program's compile."""
    return f"{store}#1/{NAMES[program]}"


def paragraph(result: Result) -> list[str]:
    """The lines of an answer, without addresses' stores."""
    return [line.strip() for line in result.out.splitlines()]


# -- why specialised ------------------------------------------------------------------------------

SPECIALISED = [
    ("branch", "L['x'].size()[0]", "dynamic", 4, "s77 == 4 was asked: True"),
    ("marked", "L['x'].size()[0]", "marked dynamic", 3, "the value of s77 was asked for: 3"),
    ("key", "L['x'].size()[1]", "dynamic", 3, "the value of s27 was asked for: 3"),
    ("checked", "L['x'].size()[0]", "dynamic", 6, "s77 == 6 was asked: True"),
    ("library", "L['x'].size()[1]", "dynamic", 4, "s27 == 4 was asked: True"),
]


@pytest.mark.parametrize(("program", "source", "was", "value", "asking"), SPECIALISED)
def test_a_specialisation_has_its_event_and_the_users_line(
    run: Run, store: Path, program: str, source: str, was: str, value: int, asking: str
) -> None:
    (story,) = asked(run, "why", at(store, program), "specialised")
    event = story["event"]
    assert re.fullmatch(rf"{re.escape(at(store, program))}@\d+", event)
    assert (story["sources"], story["was"], story["value"]) == ([source], was, value)
    assert f"{story['file']}:{story['line']}" == line_of(program)
    result = run("why-specialised", at(store, program))
    symbol = story["symbol"]
    assert paragraph(result)[0] == f"{source} ({symbol}, {was}) became {value} at {event}"
    assert f"{line_of(program)} in {program}" in result.out
    assert asking in result.out
    assert f"{event}  specialised: {symbol} is {value} from now on" in result.out
    shown = asked(run, "show", event)
    assert shown["kind"] == "shape_env.replacement"
    assert shown["data"]["symbol"] == symbol


@pytest.mark.parametrize("program", ["branch", "marked", "key", "checked"])
def test_the_source_of_the_users_line_is_told(run: Run, store: Path, program: str) -> None:
    result = run("why", at(store, program), "specialised")
    code = code_of(program).partition("  # <")[0]
    assert f"{line_of(program)} in {program}: {code}" in result.out


def test_a_line_of_a_library_is_told_beside_the_users(run: Run, store: Path) -> None:
    result = run("why-specialised", at(store, "library"))
    assert re.search(r"by way of nn/modules/linear.py:\d+ in forward: return F.linear", result.out)


@pytest.mark.parametrize(("program", "source", "was", "value", "asking"), SPECIALISED)
def test_shapes_before_and_after_show_the_change(
    run: Run, store: Path, program: str, source: str, was: str, value: int, asking: str
) -> None:
    (story,) = asked(run, "why", at(store, program), "specialised")
    seq = int(story["event"].rpartition("@")[2])
    before, after = (
        {
            row["symbol"]: row
            for row in asked(run, "shapes", at(store, program), "--at", n)["symbols"]
        }
        for n in (seq - 1, seq)
    )
    symbol = story["symbol"]
    assert before[symbol]["replacement"] is None
    assert after[symbol]["replacement"] == str(value)
    assert before[symbol]["sources"] == after[symbol]["sources"] == [source]
    result = run("shapes", at(store, program), "--diff", seq - 1, seq)
    (row,) = [line.split("  ") for line in result.out.splitlines() if "replacement" in line]
    cells = [cell.strip() for cell in row if cell.strip()]
    assert cells[:2] == [f"{symbol} replacement", str(value)]
    assert cells[2].startswith(line_of(program))
    assert cells[3] == story["event"]


def test_shapes_as_text(run: Run, store: Path) -> None:
    (story,) = asked(run, "why", at(store, "branch"), "specialised")
    result = run("shapes", story["event"])
    head, columns, first, *_ = result.out.splitlines()
    assert head.startswith(f"{at(store, 'branch')}: ShapeEnv ")
    assert columns.split("  ")[0] == "symbol"
    cells = [cell for cell in re.split(r" {2,}", first) if cell]
    assert cells[:5] == ["s77", "4", "[4, 4]", "4", "L['x'].size()[0]"]


def test_sizes_of_zero_and_one(run: Run, store: Path) -> None:
    result = run("why-specialised", at(store, "zero_one"))
    for name in ("x", "y"):
        head = rf"L\['{name}'\].size\(\)\[0\] \(dynamic\) is 1 and got no symbol at \S+@\d+"
        assert re.search(head, result.out)
    assert result.out.count(f"{line_of('zero_one')} in zero_one") == 2


def test_a_size_that_is_tied_to_another_one(run: Run, store: Path) -> None:
    """Both become static with one event; the tie has a line of its own."""
    stories = asked(run, "why", at(store, "tied"), "specialised")
    assert {story["event"] for story in stories} == {stories[0]["event"]}
    assert sorted(story["sources"][0] for story in stories) == [
        "L['x'].size()[0]",
        "L['y'].size()[0]",
    ]
    (tied,) = [story for story in stories if len(story["steps"]) == 2]
    places = [f"{step['file']}:{step['line']}" for step in tied["steps"]]
    assert places == [line_of("tie"), line_of("tied")]
    assert tied["steps"][0]["cause"]["text"] == "s77 == s17 was asked: True"


def test_a_number_that_is_a_constant(run: Run, store: Path) -> None:
    result = run("why-specialised", at(store, "constant"))
    assert re.match(r"L\['n'\] \(int\) is the constant 7 at \S+@\d+\n", result.out)
    assert f"{line_of('constant')} in constant" in result.out


def test_what_stays_dynamic_is_not_called_specialised(run: Run, store: Path) -> None:
    result = run("why-specialised", at(store, "dynamic_still"))
    assert result.out == f"{at(store, 'dynamic_still')}: no size was made static\n"
    assert result.status == 0


def test_inductor_makes_a_size_static_for_the_line_of_the_node(run: Run, store: Path) -> None:
    """Nothing is being traced then: the line is that of the node which is lowered."""
    (compile,) = [
        story["event"].partition("@")[0]
        for story in asked(run, "why-specialised", store)
        if story["sources"] == ["L['x'].size()[2]"]
    ]
    result = run("why-specialised", compile)
    place = (
        f"{line_of('lowered')} in lowered: y = torch.nn.functional.adaptive_avg_pool2d(x, (2, 2))"
    )
    assert result.out.count(place) == 2
    assert result.out.count("by way of Inductor, when it lowered _adaptive_avg_pool2d") == 2
    assert re.search(r"== 8 was asserted, by torch/_inductor/lowering.py:\d+ in", result.out)
    guards = asked(run, "shapes", compile)["guards"]
    assert any(g["line"] == f"{line_of('lowered')} in lowered" for g in guards)


def test_an_attempt_that_was_given_up_decided_nothing(run: Run, store: Path) -> None:
    """Its events are in the event log as well; the answer tells of those that came to something."""
    (story,) = asked(run, "why-specialised", at(store, "broken"))
    assert f"{story['file']}:{story['line']}" == line_of("broken size")
    assert story["event"].startswith(f"{at(store, 'broken')}_1@")
    found = [s["event"] for s in asked(run, "why-specialised", store)]
    assert [event for event in found if event.startswith(at(store, "broken"))] == [story["event"]]
    (given_up,) = asked(run, "why-specialised", f"{at(store, 'broken')}_0")
    assert given_up["event"] != story["event"]


def test_a_recording_is_asked_as_a_whole(run: Run, store: Path) -> None:
    found = {story["event"].partition("@")[0] for story in asked(run, "why-specialised", store)}
    for program in (
        "branch",
        "marked",
        "key",
        "zero_one",
        "tied",
        "checked",
        "library",
        "constant",
    ):
        assert at(store, program) in found


# -- why a symbol, why a guard --------------------------------------------------------------------


def test_the_story_of_a_symbol(run: Run, store: Path) -> None:
    result = run("why", at(store, "branch"), "s77")
    address = at(store, "branch")
    told = [re.sub(r"@\d+", "@N", line).partition(", by torch/")[0] for line in paragraph(result)]
    assert told == [
        f"s77 of {address}: L['x'].size()[0], specialised to 4",
        f"{line_of('branch first')} in branch",
        f"{address}@N  L['x'] became a fake tensor",
        f"{address}@N  s77 stands for L['x'].size()[0]: 4 in this run, range [2, oo]",
        f"{line_of('branch')} in branch: if x.shape[0] == 4:",
        f"{address}@N  s77 == 4 was asked: True",
        f"{address}@N  range of s77: [2, oo] -> [4, 4]",
        f"{address}@N  specialised: s77 is 4 from now on (range_refined_to_singleton)",
        f"{address}@N  guard: s77 == 4",
    ]
    assert result.err.startswith(f"next: torchreel shapes {address}@")


def test_the_story_of_an_unbacked_symbol(run: Run, store: Path) -> None:
    result = run("why", at(store, "unbacked"), "u0")
    assert "u0 stands for a number that only a run knows, range [-oo, oo]" in result.out
    first, second = line_of("unbacked"), line_of("unbacked at least")
    assert result.out.index(f"{first} in unbacked") < result.out.index(f"{second} in unbacked")
    assert "u0 >= 2 was asserted" in result.out
    assert "left to the run of the compiled code: (u0 % 3) == 0" in result.out


def test_without_an_address_the_latest_failing_compile_of_the_default_store_is_meant(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHREEL_STORE", str(store))
    failing = asked(run, "show")["address"]
    (story,) = asked(run, "why", "s77")
    assert story["headline"].startswith(f"s77 of {failing}: ")


def test_a_symbol_that_is_not_there(run: Run, store: Path) -> None:
    result = run("why", at(store, "branch"), "s999")
    assert result.status == 2
    assert "has no symbol 's999': it has s77, s27" in result.err


@pytest.mark.parametrize("text", ["4 <= L['x'].size()[0]", '4<=L["x"].size()[0]', "SHAPE_ENV"])
def test_the_story_of_a_guard(run: Run, store: Path, text: str) -> None:
    """`x.shape[0] > 3` becomes a bound: the guard and the question that it comes from."""
    (story,) = asked(run, "why", at(store, "dynamic_still"), text)
    assert story["guard"] == "SHAPE_ENV"
    (asking,) = [step for step in story["steps"] if step["kind"] == "shape_env.guard"]
    assert f"{asking['file']}:{asking['line']}" == line_of("dynamic_still")
    assert asking["cause"]["text"] == "s77 > 3 was asked: True"
    assert asking["code"] == "if x.shape[0] > 3:"
    assert asking["torch"]
    assert any("if x.shape[0] > 3:" in note for note in story["notes"])


def test_a_tensor_guard_tells_what_made_its_sizes_static(run: Run, store: Path) -> None:
    (story,) = asked(run, "why", at(store, "branch"), "TENSOR_MATCH")
    first, last = story["steps"]
    assert first["text"].startswith("specialised: s77 is 4")
    assert last["text"].startswith("guard: check_tensor(L['x'], Tensor, CPU, torch.float32")
    assert "size=[4, None]" in last["text"]


def test_a_guard_by_its_event(run: Run, store: Path) -> None:
    (story,) = asked(run, "why", at(store, "branch"), "TENSOR_MATCH")
    address = story["steps"][-1]["address"]
    assert asked(run, "why", address) == [story]
    assert asked(run, "why", at(store, "branch"), f"@{address.rpartition('@')[2]}") == [story]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no such guard"], "has no guard with 'no such guard' in it"),
        (["@1", "s77"], "usage:"),
        ([], "Missing argument"),
    ],
)
def test_questions_that_make_no_sense(run: Run, store: Path, words: list[str], says: str) -> None:
    result = run("why", *([at(store, "branch"), *words] if words else []))
    assert result.status == 2
    assert says in result.err


# -- recompiles and graph breaks ------------------------------------------------------------------


def test_why_a_frame_was_compiled_again(run: Run, store: Path) -> None:
    stories = asked(run, "why-recompile", f"{store}#1")
    constant, size, first = [story for story in stories if story["frame"] == "again"]
    assert [story["frame"] for story in stories] == ["limited", "again", "again", "again"]
    entry, again = constant["entry"], constant["compile"]
    assert (constant["guards"], constant["values"]) == (["L['n'] == 2"], {"L['n']": 5})
    assert size["guards"] == ["tensor 'L['x']' size mismatch at index 0. expected 3, actual 4"]
    assert (size["entry"], first["entry"]) == (again, entry)
    result = run("why", again, "recompile")
    assert (
        f"{again} (again) was compiled because entry {entry} could not be reused: L['n'] == 2"
        in (result.out)
    )
    assert f"{line_of('again')} in again" in result.out
    assert "in the new call, L['n'] is 5" in result.out
    assert result.err == f"next: torchreel guards {entry}\n"
    result = run("why", size["compile"], "recompile")
    assert f"{line_of('again is called')} in _recompile" in result.out
    assert "the size was static from the start: no event made it so" in result.out


def test_the_causes_of_recompiles_in_a_whole_recording(run: Run, store: Path) -> None:
    """Each once, with the compiles that have it; the last one last."""
    result = run("why", store, "recompile")
    heads = [line for line in result.out.splitlines() if re.match(r"\d+ x ", line)]
    size = "1 x again: tensor 'L['x']' size mismatch at index 0. expected 3, actual 4"
    assert heads[-2:] == [size, "2 x again: L['n'] == 2"]
    assert "1 x limited: L['n'] == 3; the last was left uncompiled (recompile_limit is 1)" in heads
    assert "torch._dynamo.mark_dynamic(x, 0)" in result.out.partition(size)[2]
    assert result.out.startswith("3 recompiles for 3 causes, newest last:\n")
    assert result.out.splitlines()[1] == (
        "a recompile counts under each cause for which an entry was not reused"
    ), "1 + 1 + 2 is more than 3"
    newest = asked(run, "why-recompile", store)[-1]["compile"]
    assert result.err == f"next: torchreel why {newest} recompile\n"
    assert "3 recompiles for 3 causes, " in run("ls", store).err


ATTRIBUTE = """
import torch
class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
    def forward(self, x):
        self.n += 1
        return x * self.n
counter = torch.compile(Counter(), backend="eager")
for _ in range(4):
    counter(torch.ones(2))
"""


@pytest.mark.slow
def test_what_torch_advises_is_said_once_for_a_cause(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    result = run("record", "-o", path, "--", sys.executable, "-c", ATTRIBUTE)
    assert "recorded 4 compiles into" in result.err
    assert "; 3 recompiles for 1 cause." in result.err
    asks = f"torchreel why-recompile {path}#1"
    assert result.err.endswith(f"next: {asks}\n")
    listed = run("ls", path).err
    assert f"{path}#1: 3 recompiles for 1 cause ({asks})\n" in listed
    assert listed.endswith(f"next: {asks}\n")
    assert "next: torchreel show " in run("ls", f"{path}#1/0/1").err
    result = run("why", path, "recompile")
    assert "3 x forward: L['self'].n == 2 (and with other numbers)" in result.out
    assert result.out.count("torch._dynamo.config.allow_unspec_int_on_nn_module = True") == 1
    result = run("why", f"{path}#1/0/3", "recompile")
    older = f"{path}#1/0/1, {path}#1/0/0"
    assert f"for the same causes, entries that could not be reused either: {older}" in result.out
    assert result.out.count("was compiled because") == 1


def test_a_size_that_is_static_in_the_new_call_has_its_value(run: Run, tmp_path: Path) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    torch._dynamo.reset()
    with torchreel.record(tmp_path / "run.db"):
        compiled = torch.compile(scaled, backend="eager")
        for size in (3, 4, 1):
            compiled(torch.ones(size))
    size, _ = asked(run, "why-recompile", f"{tmp_path / 'run.db'}#1/0/2")
    assert size["values"] == {"L['x'].size()[0]": 1}
    told = run("why-recompile", f"{tmp_path / 'run.db'}#1/0/2").out
    assert "  in the new call, L['x'].size()[0] is 1\n" in told


def test_a_frame_at_the_limit_was_not_compiled(run: Run, store: Path) -> None:
    (story,) = [s for s in asked(run, "why-recompile", store) if s["frame"] == "limited"]
    assert "(limited) was left uncompiled (recompile_limit is 1) because entry" in story["headline"]
    assert story["guards"] == ["L['n'] == 3"]
    (guard, _) = story["steps"]
    assert f"{guard['file']}:{guard['line']}" == line_of("limited")


def test_recompiles_of_one_compile(run: Run, store: Path) -> None:
    (story,) = [
        story
        for story in asked(run, "why-recompile", store)
        if "size mismatch" in story["headline"]
    ]
    found = asked(run, "why-recompile", story["compile"])
    assert len(found) == 2
    assert story in found
    assert run("why-recompile", at(store, "branch")).out.endswith("nothing was compiled again\n")


def test_why_the_graph_broke(run: Run, store: Path) -> None:
    """The break is in the event log of an attempt that was given up; the compile's name will do."""
    result = run("why-graph-break", at(store, "broken"))
    lines = paragraph(result)
    where = line_of("graph break")
    assert re.fullmatch(
        rf"Call to `torch._dynamo.graph_break\(\)` at {re.escape(at(store, 'broken'))}@\d+, "
        rf"handled, in print_it at {re.escape(where)}",
        lines[0],
    )
    assert lines[1] == f"{where} in print_it"
    assert lines[2] == f"called by {line_of('broken')} in broken"
    assert "hint: Remove the `torch._dynamo.graph_break()` call." in lines
    (story,) = asked(run, "why-graph-break", at(store, "broken"))
    assert story["outcome"] == "handled"
    assert story["explanation"].startswith("User-inserted graph break.")
    assert run("why-graph-break", at(store, "branch")).out.endswith("no graph break\n")


def test_a_break_that_raised_is_no_graph_break(run: Run, tmp_path: Path) -> None:
    """A full graph was asked for: the program has a failure there, and no break."""

    def prints(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x + 1

    path = tmp_path / "run.db"
    torch._dynamo.reset()
    with torchreel.record(path):
        torch.compile(prints, backend="eager")(torch.ones(2))
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(prints, backend="eager", fullgraph=True)(torch.ones(2))
    told = run("why-graph-break", path).out
    assert told.startswith("1 graph break for 1 cause, and 1 that raised, newest last:\n")
    assert ", which raised: a full graph was asked for\n" in told
    assert f"{path}#1: 1 graph break (" in run("ls", path).err
    found = asked(run, "query", path, "SELECT outcome FROM graph_breaks ORDER BY event")
    assert [row["outcome"] for row in found] == ["handled", "raised"]
    document = document_of(path)
    assert sum(row.breaks for row in document.compiles) == 1
    assert [(row.kind, row.count) for row in document.causes if "break" in row.kind] == [
        ("graph break", 1)
    ]


# -- guards ---------------------------------------------------------------------------------------


def test_the_guards_of_a_compile(run: Run, store: Path) -> None:
    rows = asked(run, "guards", at(store, "branch"))
    (tensor,) = [row for row in rows if row["type"] == "TENSOR_MATCH"]
    assert tensor["expression"] == "L['x']"
    assert f"{tensor['file']}:{tensor['line']}" == line_of("branch first")
    assert "size=[4, None]" in tensor["checks"][0]
    assert run("guards", at(store, "branch")).status == 0


def test_the_symbols_of_no_event_are_refused(run: Run, store: Path) -> None:
    where = at(store, "branch")
    for words in (("--at", 999999), ("--diff", 1, 999999)):
        told = run("shapes", where, *words)
        assert (told.status, "@999999 is not in the event log" in told.err) == (2, True), words


def test_the_events_of_a_compile_are_a_number(run: Run, store: Path) -> None:
    assert re.search(r"^events +\d+$", run("show", at(store, "branch")).out, re.MULTILINE)


@pytest.mark.parametrize(
    ("program", "described"), [("branch", "x: f32[4, 3]"), ("constant", "x: f32[3]")]
)
def test_an_input_to_try_is_one_that_the_compile_had(
    run: Run, store: Path, program: str, described: str
) -> None:
    where = at(store, program)
    assert run("guards", where).err == f"next: torchreel guards {where} --input '{described}'\n"
    tried = run("guards", where, "--input", described)
    assert tried.status == 0
    assert tried.err == f"next: torchreel show {where}\n", "it was never compiled again"


def test_an_input_that_no_guard_mentions_is_said(run: Run, store: Path) -> None:
    result = run("guards", at(store, "branch"), "--input", "y: f32[4, 3]")
    assert "no guard mentions L['y']: its description decides nothing\n" in result.err


def test_an_input_that_fails(run: Run, store: Path) -> None:
    result = run("guards", at(store, "branch"), "--input", "x: f32[5, 3]")
    assert result.status == 1
    assert re.match(r".*: \d+ guards: \d+ pass, 1 fail, \d+ unknown\n", result.out)
    (row,) = [line for line in result.out.splitlines() if line.startswith("fail")]
    assert "expected size 4 at 0, found 5" in row
    assert line_of("branch first") in row
    assert result.err.startswith("next: torchreel why ")


def test_an_input_that_passes(run: Run, store: Path) -> None:
    rows = asked(run, "guards", at(store, "branch"), "--input", "x: f32[4, 17]")
    verdicts = {row["type"]: row["verdict"] for row in rows}
    assert verdicts["TENSOR_MATCH"] == verdicts["SHAPE_ENV"] == "pass"
    assert verdicts["GRAD_MODE"] == "unknown"
    assert "fail" not in verdicts.values()
    assert run("guards", at(store, "branch"), "--input", "x: f32[4, 17]").status == 0


def test_a_number(run: Run, store: Path) -> None:
    """What is not described is unknown: it is never said to pass."""
    rows = asked(run, "guards", at(store, "constant"), "--input", "n: 8")
    by_name = {row["expression"]: row for row in rows if row["expression"].startswith("L[")}
    assert by_name["L['n']"]["verdict"] == "fail"
    assert by_name["L['n']"]["checks"][0]["reason"] == "does not hold: 8 == 7"
    assert by_name["L['x']"]["verdict"] == "unknown"


@pytest.mark.parametrize("text", ["x", "x:", ": f32[4]", "x: f99[4]", "x: f32[4] yellow", "a b: 5"])
def test_a_description_that_is_none(run: Run, store: Path, text: str) -> None:
    result = run("guards", at(store, "branch"), "--input", text)
    assert result.status == 2
    assert result.err.startswith("usage: ")


# -- what an event log can't say ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["why-specialised"], "its event log has no frames, for only a summary was kept"),
        (["shapes"], "has no ShapeEnv in its event log"),
        (["guards"], "has no guards in its event log"),
    ],
)
def test_a_summary_tells_no_story(run: Run, tmp_path: Path, words: list[str], says: str) -> None:
    path = tmp_path / "flight.db"
    torch._dynamo.reset()
    with torchreel.record(path, mode="flight"):
        torch.compile(programs.dynamic_still, backend="eager")(torch.ones(4))
    result = run(*words, f"{path}#1/0/0")
    assert result.status == 3
    assert says in result.err


def _hostile(evil: str) -> list[tuple[str, dict[str, Any]]]:
    source = {"source": "LocalSource", "local_name": evil}
    symbol = {"symbol": "s0", "assumptions": [evil], "hint": [evil], "range": [evil, evil]}
    guard = {"expression": evil, "source": 0, "types": [evil], "code": [f"L['{evil}'] == 1"]}
    return [
        ("shape_env.create", {"env": 1, "settings": {}, "validation": False}),
        ("shape_env.symbol", {"env": 1, **symbol, "sources": [source]}),
        ("shape_env.guard", {"env": 1, "expr": evil, "size_oblivious": False, "location": evil}),
        ("shape_env.replacement",
         {"env": 1, "symbol": "s0", "expr": 4, "old": None, "reason": evil}),
        ("shape_env.zero_one", {"env": 1, "source": evil, "value": evil}),
        ("frame.graph_break", {"type": evil, "reason": f"{evil}\n  Hint: {evil}", "outcome": evil}),
        ("guards.manager", {"no_aliasing": [evil, evil]}),
        ("guards.guard", {**guard, "class": evil}),
    ]  # fmt: skip


def test_hostile_text_is_spelled_out(run: Run, tmp_path: Path) -> None:
    """A store from a stranger: escape sequences in names, sources, code and messages."""
    path, evil = tmp_path / "evil.db", "\x1b[2J"
    with Store.open(path, create=True) as store, store.writer() as writer:
        recording = rows.add_recording(writer)
        compile = rows.add_compile(writer, recording)
        for seq, (kind, data) in enumerate(_hostile(evil), 1):
            columns = {"compile_id": compile, "kind": kind, "name": evil, "data": data}
            rows.add_event(writer, recording, seq, **columns)
    for words in (["shapes"], ["why-specialised"], ["why-graph-break"], ["guards"], ["why", "s0"]):
        result = run(words[0], f"{path}#1/0/0", *words[1:])
        assert evil not in result.out + result.err
        assert "\\x1b[2J" in result.out


# -- without torch --------------------------------------------------------------------------------

_WITHOUT_TORCH = """
import shlex, sys
sys.modules["torch"] = None
from torchreel.cli import app
for line in sys.argv[1:]:
    print("$", line)
    app(shlex.split(line), standalone_mode=False)
"""


def test_no_answer_needs_torch(store: Path) -> None:
    compile = at(store, "branch")
    lines = [
        f"shapes {compile}", f"why {compile} s77", f"why-specialised {store}",
        f"why-recompile {store}", f"why-graph-break {store}", f"guards {compile}",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH, *lines], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split("$ ")[1:]
    assert [len(answer.splitlines()) > 1 for answer in answers] == [True] * 6


def test_a_shape_env_that_is_not_there_is_refused(run: Run, store: Path) -> None:
    for words in ((), ("--diff", 1, 2)):
        told = run("shapes", at(store, "branch"), "--env", 99, *words)
        assert (told.status, told.out) == (2, "")
        assert re.search(r"has no ShapeEnv 99: it has \d+(, \d+)*\.$", told.err.strip())


def test_one_guard_is_counted_as_one(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "judge", lambda log, inputs: judge(log, inputs)[:1])
    for words in ((), ("--input", "x: f32[4, 3]")):
        assert re.search(r": 1 guard(:|$)", run("guards", at(store, "branch"), *words).out, re.M)
