"""Failures that need a policy of activation checkpointing are reduced without its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from tests.minifier.planted import planted_saved
from tests.minifier.real import PLANTED, case_from
from tests.minifier.recorded import record
from torchreel.formats.graphs import SAVE_POLICY
from torchreel.formats.graphs.policies import answers_of, with_answers
from torchreel.minifier.cases.case import Case
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.repro.check import check
from torchreel.minifier.scripts.script import Script, compile_form, graph_form
from torchreel.sharing.constructed.cases import construct
from torchreel.sharing.pseudonyms import Pseudonyms
from torchreel.store import Store
from torchreel.store.failures.signature import Signature

_SAVED = (torch.ops.aten.mm.default, torch.ops.aten.sin.default)
SIGNATURE = Signature("exception", "joint", "", ("RuntimeError",), (), "planted")


def policy(context: object, operator: object, *args: object, **kwargs: object) -> object:
    saved = operator in _SAVED
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def layers(x: Tensor, w: Tensor) -> Tensor:
    return torch.sigmoid(torch.sin(torch.sin(x @ w) @ w).exp() @ w).cos()


def step(x: Tensor, w: Tensor) -> Tensor:
    context = partial(create_selective_checkpoint_contexts, policy)
    made: Tensor = checkpoint(layers, x.relu(), w, use_reentrant=False, context_fn=context)
    return made.tan().sum()


def operands() -> tuple[Tensor, Tensor]:
    return torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)


def with_policy(answers: Mapping[str, list[str]]) -> Case:
    """A case with a region whose policy gave these answers."""
    case = case_from(step, *operands(), backend="aot_eager", harness="train")
    ((name, body),) = case.graph.modules.items()
    known = {operator: tuple(texts) for operator, texts in answers.items()}
    body = replace(body, extra=with_answers({}, known))
    return replace(case.with_graph(replace(case.graph, modules={name: body})), imports=())


@pytest.mark.slow
def test_a_failure_is_reduced_with_the_answers_that_it_needs(tmp_path: Path) -> None:
    path = record(tmp_path / "run.db", step, *operands(), backend=planted_saved)
    with Store.open(path, write=True) as store:
        found = minify(store, options=MinifyOptions(imports=(PLANTED,)))
    (body,) = found.case.graph.modules.values()
    assert [node.target for node in body.nodes if node.is_call] == ["fn:torch.sin"]
    assert body.extra == {SAVE_POLICY: {"aten.sin.default": ["MUST_SAVE"]}}


ANSWERS: dict[str, dict[str, list[str]]] = {
    "a list": {"aten.sin.default": ["MUST_SAVE"], "aten.mm.default": ["MUST_SAVE"] * 2},
    "a function": {
        "aten.sin.default": ["MUST_SAVE", "PREFER_RECOMPUTE"], "aten.mm.default": ["PREFER_SAVE"],
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", [compile_form, graph_form])
@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
def test_a_script_has_the_policy(
    form: Callable[..., Script], answers: dict[str, list[str]]
) -> None:
    script = form(with_policy(answers), SIGNATURE, [])
    assert "create_selective_checkpoint_contexts" in script.text
    found = check(script.text, SIGNATURE)
    assert found.detail == "it ended without an error", f"{script.text}\n{found.output}"


def test_a_region_that_saves_nothing_has_no_policy_in_a_script() -> None:
    case = with_policy({"aten.sin.default": ["PREFER_RECOMPUTE"]})
    assert "context_fn" not in compile_form(case, SIGNATURE, []).text


def test_a_bundle_has_the_policy_with_the_programs_operators_under_other_names() -> None:
    given = {"aten.sin.default": ["MUST_SAVE"], "corp.sauce.default": ["MUST_SAVE"]}
    shared = construct(with_policy(given), Pseudonyms())
    (body,) = shared.graph.modules.values()
    answers = answers_of(body.extra) or {}
    assert answers["aten.sin.default"] == ("MUST_SAVE",)
    assert len(answers) == 2
    assert "sauce" not in str(answers)
