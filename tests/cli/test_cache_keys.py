"""`why ADDRESS cache`: hits and misses of torch's caches, and the factor in which two keys part."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor.utils import fresh_cache

import torchreel
from tests.cli.conftest import Run
from torchreel.torch_compat.patching import patched

Tensor = torch.Tensor
INDUCTOR, AOT = "FxGraphCache", "AOTAutogradCache"


# Extern kernels alone: nothing waits for a C++ compiler.
def product(x: Tensor, y: Tensor) -> Tensor:
    return torch.mm(x, y)


def twice(x: Tensor, y: Tensor) -> Tensor:
    return torch.mm(torch.mm(x, y), y)


@contextlib.contextmanager
def one_key_for_all() -> Iterator[None]:
    """Plant the mistake that a key lacks the graph."""
    key = "a" * 52
    with patched(autograd_cache, "autograd_cache_key", lambda *args, **kwargs: (key, [])):
        yield


def recorded(path: Path, function: Callable[..., Tensor], **config: Any) -> Path:
    """Compile in this process, as a new process would that finds the same caches."""
    torch._dynamo.reset()
    with torchreel.record(path), torch._inductor.config.patch(config), torch.no_grad():
        torch.compile(function)(torch.ones(4, 4), torch.ones(4, 4))
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same function twice, then with another config, then another function."""
    folder = tmp_path_factory.mktemp("caches")
    with (
        fresh_cache(),
        torch._inductor.config.patch(force_disable_caches=False, fx_graph_cache=True),
        torch._functorch.config.patch(enable_autograd_cache=True),
    ):
        found = {
            "first": recorded(folder / "first.db", product),
            "again": recorded(folder / "again.db", product),
            "config": recorded(folder / "config.db", product, max_fusion_size=17),
            "code": recorded(folder / "code.db", twice),
        }
        with one_key_for_all():
            recorded(folder / "planted.db", product)
            found["planted"] = recorded(folder / "planted.db", twice)
    torch._dynamo.reset()
    return found


def asked(run: Run, *words: object) -> dict[str, Any]:
    """The last story of each cache."""
    result = run("why", *words, "--json")
    assert result.status == 0, result.err
    return {story["cache"]: story for story in json.loads(result.out)}


def test_the_same_code_hits(stores: dict[str, Path], run: Run) -> None:
    found = asked(run, stores["again"], "cache", "--vs", stores["first"])
    assert {name: story["outcome"] for name, story in found.items()} == {
        AOT: "hit",
        INDUCTOR: "hit",
    }
    assert found[AOT]["verdict"] == "the same key for the same Dynamo graph"
    assert found[AOT]["nearest"]["outcome"] == "miss"
    assert found[AOT]["differences"] == []


def test_a_config_entry_is_the_factor_of_a_false_miss(stores: dict[str, Path], run: Run) -> None:
    found = asked(run, stores["config"], "cache", "--vs", stores["first"])
    named = {"name": "inductor_config[max_fusion_size]", "one": "17", "other": "64"}
    assert found[INDUCTOR]["differences"] == [named]
    assert found[INDUCTOR]["verdict"] == "another key for the same generated code (false miss)"
    recorded_fact = {"name": "inductor.max_fusion_size", "one": "17", "other": "(the default)"}
    assert found[AOT]["differences"] == [recorded_fact]


def test_the_graph_is_the_factor_where_the_code_is_other(stores: dict[str, Path], run: Run) -> None:
    found = asked(run, stores["code"], "cache", "--vs", stores["first"])
    assert found[INDUCTOR]["differences"][0]["name"] == "gm"
    assert found[INDUCTOR]["verdict"] == "another key for other code"
    assert "Dynamo graph" in found[AOT]["differences"][0]["name"]


def test_a_hit_on_other_code_is_called_false(stores: dict[str, Path], run: Run) -> None:
    found = asked(run, f"{stores['planted']}#2", "cache", "--vs", f"{stores['planted']}#1")
    assert found[AOT]["outcome"] == "hit"
    assert found[AOT]["verdict"].endswith("what it finds is other code (false hit)")


def test_without_another_recording_the_nearest_earlier_lookup_is_named(
    stores: dict[str, Path], run: Run
) -> None:
    result = run("why", stores["planted"], "cache")
    assert "no other lookup to hold it against" in result.out
    assert "(false hit)" in result.out


def test_the_lookup_for_the_same_frame_is_nearest(tmp_path: Path, run: Run) -> None:
    """Not the latest, which was for another function."""
    path, sizes = tmp_path / "run.db", torch.ones(4, 4)
    torch._dynamo.reset()
    with (
        fresh_cache(),
        torch._inductor.config.patch(force_disable_caches=False, fx_graph_cache=True),
        torch._functorch.config.patch(enable_autograd_cache=True),
        torchreel.record(path),
        torch.no_grad(),
    ):
        first, second = torch.compile(product, dynamic=False), torch.compile(twice, dynamic=False)
        first(sizes, sizes)
        second(sizes, sizes)
        first(torch.ones(8, 8), torch.ones(8, 8))
    torch._dynamo.reset()
    for name, story in asked(run, path, "cache").items():
        assert story["event"].startswith(f"{path}#1/0/1@"), name
        assert story["nearest"]["event"].startswith(f"{path}#1/0/0@"), name


def test_a_line_for_each_difference(stores: dict[str, Path], run: Run) -> None:
    result = run("why", stores["config"], "cache", "--vs", stores["first"])
    assert "    inductor_config[max_fusion_size]: 17 | 64" in result.out.splitlines()
    assert f"next: torchreel diff {stores['config']}" in result.err


def test_a_compile_that_asked_no_cache_is_refused(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "eager.db"
    with torchreel.record(path):
        torch.compile(product, backend="eager")(torch.ones(2, 2), torch.ones(2, 2))
    assert run("why", path, "cache").status == 3


def test_vs_is_for_caches_alone(stores: dict[str, Path], run: Run) -> None:
    result = run("why", stores["first"], "recompile", "--vs", stores["again"])
    assert result.status == 2
    assert "--vs" in result.err
