"""The part of a run on Ray that needs no Ray: what a task asks for, and what becomes of its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from torchreel.errors import MinifyError
from torchreel.minifier.groups import on_ray
from torchreel.minifier.groups.jobs import GroupJob
from torchreel.minifier.options import MinifyOptions


def _node(cores: float | None, *, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"memory": 1.0} | ({"CPU": cores} if cores else {})}


def test_a_task_asks_for_what_one_machine_has() -> None:
    nodes = [_node(4.0), _node(8.0), _node(64.0, alive=False), _node(None)]
    assert on_ray.cores_of_a_task(nodes) == 8


@pytest.mark.parametrize("nodes", [[], [_node(None)], [_node(4.0, alive=False)], [_node(0.5)]])
def test_a_cluster_without_cores_is_refused(nodes: list[dict[str, Any]]) -> None:
    with pytest.raises(MinifyError, match="No task can run"):
        on_ray.cores_of_a_task(nodes)


class _RayError(Exception):
    pass


class _RayTaskError(_RayError):
    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


class _Cancelled(_RayError):
    pass


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [
        (_RayTaskError(KeyError("no such node")), "refused", "KeyError: 'no such node'"),
        (_Cancelled(), "interrupted", ""),
        (_RayError("The worker died."), "refused", "died 4 times: The worker died."),
    ],
)
def test_the_end_of_one_task_ends_no_other(error: Exception, state: str, said: str) -> None:
    def get(task: object) -> object:
        raise error

    kinds = {"TaskCancelledError": _Cancelled, "RayTaskError": _RayTaskError, "RayError": _RayError}
    ray = SimpleNamespace(get=get, exceptions=SimpleNamespace(**kinds))
    found = on_ray._result(ray, None, GroupJob(("1/0/0",), MinifyOptions()))
    assert (found.state, found.place) == (state, "1/0/0")
    assert said in found.detail
