"""The normalisation makes equal what only a process tells apart, and nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest

from torchreel.replay.compare.lanes import Lane, LogLine, Operator, _without_order_of_sets
from torchreel.replay.compare.normalise import (
    Normaliser,
    canonical_code,
    canonical_text,
    equal_symbols,
)
from torchreel.replay.compare.normalise_dynamo import DynamoNormaliser
from torchreel.replay.compare.rules import EXCUSES, SCOPES
from torchreel.replay.compare.selection import EventSelection, Point, Sifted, fact_of
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Event

DIGEST = "cj4xpe4loz3umyhtvfrt2ueuxcnpwd33qxqmi2dcr7h25ppmao4h"


def event(kind: str, data: Json, seq: int = 1, **fields: object) -> Event:
    return replace(Event(1, seq, 1, "joint", kind, "", 0, data, None), **fields)  # type: ignore[arg-type]


def texts(*events: Event) -> list[bytes]:
    normaliser = Normaliser()
    return [normaliser.canonical(each).text for each in events]


SAME_TEXT = [
    (f"/tmp/torchinductor_me/j4/{DIGEST}.py", f"~/.cache/torchreel/inductor/j4/{DIGEST}.py"),
    (
        "__compiled_fn_1_0b6a8e2c_1111_2222_3333_444455556666",
        "__compiled_fn_7_ffffffff_1111_2222_3333_444455556666",
    ),
    (" # graph id: 140607327860688", "# graph id: 139972608392400"),
    (
        "c0 = None  # device(type='cpu') torch.float32 (40, 4) (4, 1) 7fa02d23e300",
        "c0 = None  # device(type='cpu') torch.float32 (40, 4) (4, 1) 7f28f05f9a40",
    ),
    ("<function f at 0x7f31c0a81b20>", "<function f at 0x7f0000000010>"),
    ("RandomState(MT19937) at 0x7FF60C979140>", "RandomState(MT19937) at 0x7F5560371E40>"),
    (
        'File "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", line 134',
        'File "~/src/pytorch/torch/nn/modules/linear.py", line 134',
    ),
    (
        "x > 1  # return x  # app/m.py:9 in f (HINT)",
        "x > 1  # return x  # me/app/m.py:9 in f (HINT)",
    ),
    ("f (.venv/lib/python3.11/site-packages/a/b.py:3)", "f (/opt/site-packages/a/b.py:3)"),
    # As Python quotes what was taken out, with an apostrophe in it or without.
    ('check(lt, "<redacted>")', "check(lt, '<redacted>')"),
    ('check(lt, "<redacted 2>")', "check(lt, '<redacted 2>')"),
]
OTHER_TEXT = [
    (f"/tmp/x/j4/{DIGEST}.py", f"/tmp/x/j4/{DIGEST[:-1]}a.py"),
    ("x + 0x7f31c0a81b20", "x + 0x7f31c0a81b21"),
    ("# graph id 1", "# graph id 2"),
    (
        "c0 = None  # device(type='cpu') torch.float32 (40,) (4,) 7fa02d23e300",
        "c0 = None  # device(type='cpu') torch.float32 (40,) (1,) 7fa02d23e300",
    ),
    ("c0 = 1  # torch.float32 (40,) (1,) 7fa02d23e300", "c0 = 1  # torch.float32 (40,) (1,) 7"),
    ("x = 1  # graph id: 1 or so", "x = 1  # graph id: 2 or so"),
    ("/home/me/program.py", "/home/you/program.py"),
    ("x > 1  # app/m.py:9 in f", "x > 1  # app/n.py:9 in f"),
    ("/home/me/torch/program.py", "/home/you/torch/program.py"),
    ("/opt/site-packages/a/torch/nn/b.py", "/opt/site-packages/c/torch/nn/b.py"),
    ("me/site-packages + 1", "you/site-packages + 1"),
    ("tmp0 = 3.0", "tmp0 = 3.5"),
    ("__compiled_fn_1", "__compiled_fn_2"),
    ('check(lt, "<redacted 1>")', "check(lt, '<redacted 2>')"),
]


@pytest.mark.parametrize(("one", "other"), SAME_TEXT)
def test_texts_of_two_processes_are_one(one: str, other: str) -> None:
    assert canonical_text(one) == canonical_text(other)


def test_in_code_an_address_is_that_of_a_printed_object() -> None:
    one, other = "0x7f31c0a81b20", "0x7f0000000010"
    assert canonical_code(f"<function f at {one}>") == canonical_code(f"<function f at {other}>")
    assert canonical_code(f"look at {one}") != canonical_code(f"look at {other}")


@pytest.mark.parametrize(("one", "other"), OTHER_TEXT)
def test_texts_that_differ_stay_apart(one: str, other: str) -> None:
    assert canonical_text(one) != canonical_text(other)
    assert canonical_code(one) != canonical_code(other)


def test_numbers_given_out_by_a_process_are_ranks() -> None:
    def log(*numbers: int) -> list[bytes]:
        return texts(
            *(event("shape_env.guard", {"env": number, "expr": "s0"}) for number in numbers),
        )

    assert log(4, 7, 4) == log(1, 2, 1)
    assert log(4, 7, 4) != log(1, 2, 2)


def test_a_tensor_is_numbered_within_its_describer() -> None:
    def log(*pairs: tuple[int, int]) -> list[bytes]:
        return texts(
            *(event("fake_tensors.convert", {"describer": a, "tensor": b}) for a, b in pairs)
        )

    assert log((3, 9), (5, 9), (3, 9)) == log((1, 0), (2, 4), (1, 0))
    assert log((3, 9), (3, 8)) != log((1, 0), (1, 0))


def test_the_tree_of_a_source_is_its_name() -> None:
    def log(source: Json) -> list[bytes]:
        return texts(event("fake_tensors.convert", {"source": source}))

    local: Json = {"source": "LocalSource", "local_name": "self", "is_input": True}
    tree: Json = {"source": "AttrSource", "base": local, "member": "bias"}
    assert log(tree) == log("L['self'].bias")
    assert log(tree) != log("L['self'].weight")
    assert log({"source": "opaque", "name": "L['x']", "reason": ""}) == log("L['x']")
    odd: Json = {"source": "AttrSource", "base": None, "member": None}
    assert log(odd) != log({**odd, "member": 3})
    assert log({"source": "NoSuchSource"}) != log({"source": "NoOtherSource"})


def test_the_name_of_a_source_may_hold_an_identity() -> None:
    def log(*scopes: int) -> list[bytes]:
        names = [f"G['___unnamed_scope_{scope}_c0']['T']" for scope in scopes]
        return texts(*(event("fake_tensors.convert", {"source": name}) for name in names))

    assert log(140000000000000, 141111111111111) == log(139999999999999, 138888888888888)
    assert log(140000000000000, 140000000000000) != log(139999999999999, 138888888888888)


def test_an_identity_in_a_name_may_be_an_address_of_few_digits() -> None:
    def log(*numbers: int) -> list[bytes]:
        names = [f"G['__optimizer_{number}_c0']" for number in numbers]
        return texts(*(event("fake_tensors.convert", {"source": name}) for name in names))

    # An interpreter that is not relocated lies at 0x400000, with its heap right behind.
    assert log(9_437_184, 61_437_184) == log(140_000_000_000_000, 139_999_999_999_999)
    assert log(9_437_184, 9_437_184) != log(9_437_184, 61_437_184)


def test_a_name_may_hold_two_identities() -> None:
    """That of an optimizer's state is of the optimizer and of what refers to it."""

    def log(*numbers: tuple[int, int]) -> list[bytes]:
        names = [f"__optimizer_{one}_{other}_c4" for one, other in numbers]
        return texts(*(event("output_graph.global", {"names": name}) for name in names))

    one, other = (139723587942480, 139723542111200), (140275345322704, 140275310877100)
    assert log(one) == log(other)
    assert log(one, one) != log(one, other)


def test_a_set_of_objects_has_no_order_in_a_guard() -> None:
    """It prints in the order of the addresses of what is in it."""
    one = "G['t'] == frozenset({<class 'list'>, <function named at 0x7fd4f2b1b9c0>})"
    other = "G['t'] == frozenset({<function named at 0x7ffb86a9f9c0>, <class 'list'>})"
    third = "G['t'] == frozenset({<function named at 0x7ffb86a9f9c0>, <class 'dict'>})"
    forms = [texts(event("guards.guard", {"code": [text]})) for text in (one, other, third)]
    assert forms[0] == forms[1] != forms[2]


@pytest.mark.parametrize(
    ("one", "other", "third"),
    [
        ("x in {'b', 'a, {c}', \"d'\"}", "x in {\"d'\", 'a, {c}', 'b'}", "x in {'a', '{c}', 'b'}"),
        ("{torch.int64, torch.int8}", "{torch.int8, torch.int64}", "{torch.int8, torch.int16}"),
    ],
)
def test_a_set_of_literals_has_no_order_in_a_guard(one: str, other: str, third: str) -> None:
    """Strings print in the order of their hashes, dtypes in that of their addresses."""
    forms = [texts(event("guards.guard", {"code": [text]})) for text in (one, other, third)]
    assert forms[0] == forms[1] != forms[2]


def test_the_place_of_a_constant_means_nothing_and_the_constant_does() -> None:
    """Python 3.11 does not print the names of keywords, of which it prints the place alone."""
    forms = DynamoNormaliser()
    one, other, third = (
        forms.payload(f"  2 KW_NAMES {place}\n  4 CALL 2\n  6 LOAD_CONST {place} ({constant!r})\n")
        for place, constant in ((42, "a"), (43, "a"), (42, "b"))
    )
    assert one == other != third


def test_a_set_that_bytecode_builds_of_constants_has_no_order() -> None:
    """Those before them keep theirs, and so do those of a list."""

    def listing(*names: str, built: str = "BUILD_SET") -> str:
        rows = [f"  {2 * at} LOAD_CONST  {at} ({name!r})" for at, name in enumerate(names)]
        rows += [f"  90 {built}      2", "  92 POP_TOP"]
        return DynamoNormaliser().payload("\n".join(rows))

    assert listing("z", "b", "a") == listing("z", "a", "b")
    assert listing("z", "b", "a").index("'a'") < listing("z", "b", "a").index("'b'")
    assert listing("b", "z", "a") != listing("z", "a", "b")
    assert listing("z", "b", "a", built="BUILD_LIST") != listing("z", "a", "b", built="BUILD_LIST")
    assert listing("a") == "  0 LOAD_CONST ('a')\n  90 BUILD_SET      2\n  92 POP_TOP"


@pytest.mark.parametrize(
    ("one", "other"), [("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}"), ("['a', 'b']", "['b', 'a']")]
)
def test_what_is_no_set_has_an_order_in_a_guard(one: str, other: str) -> None:
    forms = [texts(event("guards.guard", {"code": [text]})) for text in (one, other)]
    assert forms[0] != forms[1]


def test_a_cause_is_a_distance() -> None:
    def log(first: int, last: int) -> list[bytes]:
        return texts(
            event("proxies.trace", {}, first), event("inductor.pass", {}, first + 1),
            event("proxies.node", {}, last, cause=first),
        )  # fmt: skip

    assert log(10, 12) == log(400, 437)
    moved = texts(
        event("proxies.trace", {}, 10), event("inductor.pass", {}, 11),
        event("proxies.node", {}, 12, cause=11),
    )  # fmt: skip
    assert log(10, 12) != moved


def test_frames_are_compared_by_the_names_of_their_files() -> None:
    def log(number: int, name: str = "model.py", line: int = 3) -> bytes:
        normaliser = Normaliser()
        normaliser.learn(event("str", {"str": [name, number]}))
        frames: Json = [{"filename": number, "line": line, "name": "f", "loc": ""}]
        guard = {"guard_added": {"expr": "s0 > 1", "user_stack": frames, "stack": [number]}}
        return normaliser.canonical(event("guard_added", guard)).text

    assert log(3) == log(17)
    assert log(3) != log(3, name="other.py")
    assert log(3) != log(3, line=4)


def test_what_torch_collects_in_a_set_has_no_order() -> None:
    def log(name: str, *values: str) -> list[bytes]:
        return texts(event("compilation_metrics", {"compilation_metrics": {name: [*values]}}))

    assert log("tensorify_float_failure", "a", "b") == log("tensorify_float_failure", "b", "a")
    assert log("tensorify_float_failure", "a", "b") != log("tensorify_float_failure", "a", "c")
    one, other, third = (
        f"<function {name}>" for name in ("f at 0x7a1", "f at 0x7b2", "g at 0x7a1")
    )
    assert log("tensorify_float_failure", *one) == log("tensorify_float_failure", *other)
    assert log("tensorify_float_failure", *one) != log("tensorify_float_failure", *third)
    assert log("cache_keys", "a", "b") != log("cache_keys", "b", "a")


def test_what_is_told_of_a_cached_result_is_set_aside_for_an_aten_graph_alone() -> None:
    def sift(entry: str, frame: str) -> Sifted | None:
        told: Json = {"guard_added_fast": {"expr": "s0 > 1", "stack": [{"name": frame}]}}
        selected = EventSelection(SCOPES[entry], Point(entry), EXCUSES, began=True)
        return selected.sift(event("guard_added_fast", told, stage="forward"))

    cached = "_get_output_tensor_from_cache_entry"
    assert sift("aot", cached) == Sifted("", "fake-tensor cache")
    assert sift("aot", "evaluate_expr") == sift("graph", cached) == Sifted("")


@pytest.mark.parametrize("field", ["grad", "values", "unwrapped", "attrs"])
def test_tensors_within_a_tensor_are_numbered_as_tensors(field: str) -> None:
    """A describer of a process that had described others gives other ids."""

    def described(first: int, within: int) -> list[Event]:
        inner: Json = {"a": within} if field == "attrs" else within
        rows: list[dict[str, Json]] = [{"id": first + 1}, {"id": first, field: inner}]
        return [
            event("describe_tensor", {"describe_tensor": {**row, "describer_id": 1}})
            for row in rows
        ]

    assert texts(*described(3, 4)) == texts(*described(6, 7))
    assert texts(*described(3, 4)) != texts(*described(3, 3))
    assert texts(*described(3, 4)) != texts(*described(6, 8))


def test_a_guard_that_the_conversion_of_inputs_asked_for_is_known_to_a_replay() -> None:
    """A ShapeEnv evaluates a guard once: a replay, which converts nothing, comes to it later."""

    def told(function: str, expression: str) -> Event:
        data: Json = {"guard_added_fast": {"expr": expression, "stack": [{"name": function}]}}
        return event("guard_added_fast", data, stage="pre_grad")

    conversion, later = told("process_inputs", "s0 <= s1"), told("dispatch", "s0 <= s1")
    recorded = EventSelection(SCOPES["graph"], Point("graph"), EXCUSES, began=True)
    assert recorded.sift(conversion) == Sifted("", "fake inputs")
    known = frozenset({fact_of(conversion)})
    replayed = EventSelection(SCOPES["graph"], Point("graph"), EXCUSES, began=True, known=known)
    assert replayed.sift(later) == Sifted("", "seen before")
    assert replayed.sift(told("dispatch", "s0 <= s2")) == Sifted("")


CHANGES: list[tuple[str, Json]] = [
    ("stage", "forward"),
    ("name", "other"),
    ("kind", "shape_env.range"),
    ("data", {"env": 1, "expr": "s0 + 2", "hint": 3}),
    ("data", {"env": 1, "expr": "s0 + 1", "hint": 4}),
    ("data", {"env": 1, "expr": "s0 + 1", "hint": "3"}),
    ("data", {"env": 1, "expr": "s0 + 1", "hint": 3, "more": None}),
    ("data", {"env": None, "expr": "s0 + 1", "hint": 3}),
]


@pytest.mark.parametrize(("field", "value"), CHANGES)
def test_what_is_in_no_table_is_compared(field: str, value: Json) -> None:
    before = event("shape_env.guard", {"env": 1, "expr": "s0 + 1", "hint": 3})
    assert texts(before) != texts(replace(before, **{field: value}))  # type: ignore[arg-type]


def test_a_payload_is_compared() -> None:
    one, other = Normaliser(), Normaliser()
    artifact = event("artifact", {"artifact": {"name": "graph"}, "has_payload": "md5"})
    assert one.canonical(artifact, "x = 1").text != other.canonical(artifact, "x = 2").text


def test_it_imports_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, torchreel.replay.compare.normalise; sys.exit('torch' in sys.modules)"
    folder = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=folder).returncode == 0


def test_files_of_torch_are_named_within_torch() -> None:
    def log(path: str) -> list[bytes]:
        return texts(event("artifact", {"pathname": path, "lineno": 7}))

    plain = log("torch/_inductor/compile_fx.py")
    # An environment in a directory that is on sys.path.
    assert plain == log(".venv/lib/python3.11/site-packages/torch/_inductor/compile_fx.py")
    assert plain != log("torch/_inductor/graph.py")
    assert plain != log("my_torch/_inductor/compile_fx.py")


def test_guards_on_sizes_name_the_file_and_not_its_folder() -> None:
    """Torch shortens a path that it shares; torch may lie in the home directory of a user."""

    def log(path: str, number: int = 2) -> list[bytes]:
        texts_ = [f"{number} <= L['x'].size()[0]  # return x  # {path}:134 in forward (HINT)"]
        return texts(event("shape_env.guards", {"env": 0, "guards": [texts_]}))

    plain = log("nn/modules/linear.py")
    assert plain == log("~/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py")
    assert plain != log("nn/modules/conv.py")
    assert plain != log("nn/modules/linear.py", 3)


_TOLD: Json = ["float32", [0, 3], [3, 1], "cpu"]
_UNTOLD: Json = ["float32", [0, 3], None, "cpu"]


@pytest.mark.parametrize(
    ("outcomes", "results", "expected"),
    [
        (("hit", "hit"), (_TOLD, _UNTOLD), 1),
        (("miss", "hit"), (_UNTOLD, _TOLD), 1),
        (("hit", "hit"), ([_TOLD, _TOLD], [_UNTOLD, _TOLD]), 1),
        (("hit", "hit"), (_TOLD, _TOLD), 0),
        (("ran", "ran"), (_TOLD, _UNTOLD), None),
        (("hit", "ran"), (_TOLD, _UNTOLD), None),
        (("hit", "hit"), (_TOLD, ["float32", [0, 3], [1, 1], "cpu"]), None),
        (("hit", "hit"), (_TOLD, ["float32", [0, 4], None, "cpu"]), None),
        (("hit", "hit"), (_TOLD, ["float64", [0, 3], None, "cpu"]), None),
        (("hit", "hit"), (["float32", ["s0"], [1], "cpu"], ["float32", ["s0"], None, "cpu"]), None),
    ],
)
def test_strides_that_a_cached_result_does_not_tell_mean_nothing(
    outcomes: tuple[str, str], results: tuple[Json, Json], expected: int | None
) -> None:
    one, other = (
        Operator("aten.detach.default", outcome, [None, result], ())
        for outcome, result in zip(outcomes, results, strict=True)
    )
    assert one.cached_differences(other) == expected
    assert other.cached_differences(one) == expected


@pytest.mark.parametrize("outcome", ["hit", "miss"])
def test_what_ran_within_an_operator_is_compared_whatever_its_strides(outcome: str) -> None:
    """A stride that one of two results does not tell hides no other decomposition."""

    def operator(strides: Json, inner: str) -> Operator:
        within = Operator(inner, "miss", [None, ["f32", [4], [1], "cpu"]], ())
        return Operator("aten.add", outcome, [None, ["f32", [4], strides, "cpu"]], (within,))

    assert operator(None, "aten.mul").cached_differences(operator([7], "aten.mul")) == 1
    assert operator(None, "aten.mul").cached_differences(operator([7], "aten.sub")) is None
    assert operator([7], "aten.mul").cached_differences(operator([6], "aten.mul")) is None


def test_four_results_are_no_tensor() -> None:
    one, other = (["f32", [4], strides, "cpu"] for strides in (None, [1]))
    four = Operator("aten.f", "hit", [one, one, None, one], ())
    assert four.cached_differences(Operator("aten.f", "hit", [other, one, None, one], ())) == 1
    assert four.cached_differences(Operator("aten.f", "hit", [other, one, one, one], ())) is None
    layouts = (Operator("aten.f", "hit", ["f32", [4], layout, "cpu"], ()) for layout in ("x", None))
    assert next(layouts).cached_differences(next(layouts)) is None


def test_an_object_in_a_message_is_told_by_no_address() -> None:
    said = "Found in <bound method name of <torch.ScanOp object at {}>>"
    for field in ("error", "why"):
        one, other = (
            event("subgraph.leave", {field: said.format(at)}) for at in ("0x7fcd11", "0x7f31b5")
        )
        assert len({*texts(one), *texts(other)}) == 1
    one, other = (event("x.y", {"why": f"x + {at}"}) for at in ("0x7fcd11", "0x7f31b5"))
    assert len({*texts(one), *texts(other)}) == 2


def test_a_stack_begins_with_the_frame_whatever_its_callers_are_called() -> None:
    """A caller may have the name of the frame, or be printed as what Dynamo resumes."""
    callers = {("m.py", 3, "forward"), ("m.py", 9, "torch_dynamo_resume_in_outer_at_7")}
    forms = DynamoNormaliser(("m.py", "forward"), (20, 30), frozenset(callers))
    frame = '  File "m.py", line 21, in forward\n    self.a()\n'
    inner = '  File "m.py", line 41, in a\n    b()\n'
    outer = '  File "m.py", line 9, in outer\n    f()\n  File "m.py", line 3, in forward\n    g()\n'
    for own in (frame + inner, inner, frame + inner + frame + inner):
        assert forms.payload(f"Stack:\n{outer}{own}") == f"Stack:\n{own}"
        assert forms.payload(own) == own


def test_a_frame_that_breaks_at_the_line_that_called_it_is_taken_for_the_caller() -> None:
    """Torch shows a resumed frame and the one that called it as one, where the line is one."""
    again = '  File "m.py", line 21, in forward\n    a() or b()\n'
    later = '  File "m.py", line 22, in forward\n    c()\n'
    main = '  File "m.py", line 3, in main\n    g()\n'
    callers = frozenset({("m.py", 3, "main"), ("m.py", 21, "forward")})
    forms = DynamoNormaliser(("m.py", "torch_dynamo_resume_in_forward_at_21"), (20, 30), callers)
    # With its callers, with itself, and as a replay has it: called by nobody, itself or nothing.
    for stack in (main + again, main + again + again, again, ""):
        assert forms.payload(f"Stack:\n{stack}\nEnd") == "Stack:\n\nEnd"
    for stack in (main + again + later, main + later, later):
        assert forms.payload(f"Stack:\n{stack}\nEnd") == f"Stack:\n{later}\nEnd"
    assert forms.payload(main) == ""


def test_saved_tensors_have_one_symbol_for_those_that_are_equal() -> None:
    """A chain of replacements ends at its last symbol; a number is no symbol."""
    replaced = [
        event("shape_env.replacement", {"env": 0, "expr": expr, "old": None, "reason": "solve"})
        for expr in ("s16", "s3", 7)
    ]
    names = ("s27", "s16", "s5")
    named = [replace(one, name=name) for one, name in zip(replaced, names, strict=True)]
    equal = equal_symbols(named)
    assert equal == {"s27": "s3", "s16": "s3"}
    anew = event("shape_env.create", {"env": 1})
    assert equal_symbols([*named[:1], anew, *named[1:]]) == {"s16": "s3"}

    def saved(*strides: Json) -> bytes:
        row: Json = ["getitem_1", ["float32", [2, "s27", 32], list(strides), "cpu"]]
        forms = Normaliser(equal=equal)
        data = {"saved": [row], "symbols": [["s27", "s27"]]}
        return forms.canonical(event("aot.partition", data)).text

    assert saved("Mul(32, s27)", 32, 1) == saved("Mul(32, s16)", 32, 1)
    assert saved("Mul(32, s27)", 32, 1) != saved("Mul(32, s5)", 32, 1)
    assert saved("s275", 1, 1) != saved("s16", 1, 1)


def test_members_of_trace_records_alone_are_dropped() -> None:
    """The arguments of an export and a rank of a collective may have the same names."""
    fields = {"has_payload": "a1", "rank": 0, "stack": [1]}
    for kind in ("describe_tensor", "dynamo_start"):
        one, other = event(kind, {kind: fields, **fields}), event(kind, {kind: {}})
        assert texts(one) == texts(other), kind
    for own in ("export.start", "collective.gathered"):
        for name in fields:
            one, other = (event(own, {name: 1, "kwargs": {name: value}}) for value in (4, 8))
            assert texts(one) != texts(other), name
            one, other = (event(own, {name: value}) for value in (4, 8))
            assert texts(one) != texts(other), name


def checked(source: str, number: str) -> str:
    return DynamoNormaliser().text(f"___check_type_id({source}, {number}), type=<class 'A'>")


@pytest.mark.parametrize(
    "source",
    [
        "L['x']", "list.__getitem__(L['l'], 1)", "___tuple_iterator_getitem(L['i'], 0)",
        "L['d'][('a', 1)]", "list.__getitem__(L['l'], 1).member",
    ],
)  # fmt: skip
def test_the_identity_in_a_check_is_the_number_at_its_end(source: str) -> None:
    """An index in the source of what is checked is none."""
    assert checked(source, "94000000001") == checked(source, "94000000777")
    assert checked(source, "94000000001") != checked(source.replace("1", "2") + ".b", "94000000001")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{('a', 1), ('b', 2)}", "{('b', 2), ('a', 1)}"),
        ("{b'a', b'b'}", "{b'b', b'a'}"),
        ("{device(type='cpu'), 'a'}", "{'a', device(type='cpu')}"),
        ("frozenset({('a',), (1, 2)})", "frozenset({(1, 2), ('a',)})"),
    ],
)
def test_a_set_of_tuples_or_calls_has_no_order(one: str, other: str) -> None:
    text = DynamoNormaliser().text
    assert text(one) == text(other)
    assert text("{'a': (1, 2), 'b': (2, 1)}") != text("{'b': (2, 1), 'a': (1, 2)}")


def test_addresses_that_others_than_repr_print_are_none() -> None:
    text = DynamoNormaliser().text
    assert text("<weakref at 0x7f1111111111; to 'A' at 0x7f1111111112>") == text(
        "<weakref at 0x7f2111111111; to 'A' at 0x7f2111111112>"
    )
    assert text('<code object f at 0x7f1111111111, file "m.py", line 3>') == text(
        '<code object f at 0x7f2111111111, file "m.py", line 3>'
    )


def test_ranges_that_follow_from_one_guard_have_no_order() -> None:
    """Nor have their distances to the guard's call, which are those of their places."""

    def log(*symbols: str) -> list[tuple[str, bytes]]:
        lines = [
            LogLine(found, replace(Normaliser().canonical(found), cause=place))
            for place, symbol in enumerate(symbols, 1)
            for found in [event("shape_env.range", {}, name=symbol)]
        ]
        return [(line.event.name, line.text) for line in _without_order_of_sets(lines)]

    assert log("s0", "s1") == log("s1", "s0")
    assert log("s0", "s1") != log("s0", "s2")


def test_bytecode_and_guards_are_compared_after_a_cache_gave_the_code() -> None:
    """They are Dynamo's, and the same after a hit; those of the ShapeEnv name another line."""

    def lane(*kinds: str) -> Lane:
        found = [
            event("guards.guard", {}, name=kind, stage="guards")
            if kind.isupper()
            else event(kind, {})
            for kind in kinds
        ]
        return Lane([LogLine(each, Normaliser().canonical(each)) for each in found])

    bytecode = "output_graph.bytecode"
    guards = ("SHAPE_ENV", "TYPE_MATCH", "ID_MATCH")
    whole = lane("proxies.node", "shape_env.range", bytecode, *guards)
    for more in ((), (bytecode,)):
        hit = lane("proxies.node", *more, *guards)
        hit.hit = 1
        left, right = hit.beside(whole)
        assert [line.event.name for line in left] == ["", *["" for _ in more], *guards[1:]]
        assert [line.event.name for line in right] == ["", "", "TYPE_MATCH", "ID_MATCH"]
    ended = lane("proxies.node")
    ended.hit = 1
    assert [len(lines) for lines in ended.beside(whole)] == [1, 1]


def test_a_traceback_does_not_tell_what_the_cache_of_fake_results_knew() -> None:
    """Torch calls the same function from another line where it knows that it keeps no result."""
    text = (
        'File "/x/site-packages/torch/_subclasses/fake_tensor.py", line {}, in {}\n    {}\n'
        '  File "/x/site-packages/torch/_subclasses/fake_tensor.py", line 3052, in _dispatch_impl\n'
        "    op_impl_out = op_impl(self, func, *args, **kwargs)\n"
    )
    known = text.format(1739, "_cached_dispatch_impl", "return self._dispatch_impl(func)\n    ^^^^")
    asked = text.format(1754, "_cached_dispatch_impl", "output = self._dispatch_impl(func)")
    assert canonical_text(known) == canonical_text(asked)
    assert "line 3052, in _dispatch_impl\n    op_impl_out" in canonical_text(asked)
    elsewhere = [text.format(line, "dispatch", "return f()") for line in (2386, 2387)]
    assert canonical_text(elsewhere[0]) != canonical_text(elsewhere[1])
