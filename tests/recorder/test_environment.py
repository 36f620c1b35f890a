"""What is said of the environment, and what never is."""

import subprocess
import sys
from pathlib import Path

import pytest

from torchreel.recorder import environment
from torchreel.store import Store, queries


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "1", "1"),
        ("OMP_NUM_THREADS", "4", "4"),
        ("TORCHINDUCTOR_CACHE_DIR", "/home/me/cache", "<path>"),
        ("TORCH_HUB_TOKEN", "abc", "<redacted>"),
        ("PYTORCH_JIT_KEY", "sk1234567890abcdefghijklmnop", "<redacted>"),
    ],
)
def test_allowed_variables_are_redacted(name: str, value: str, kept: str) -> None:
    assert environment.variables({name: value}) == {f"env:{name}": kept}


@pytest.mark.parametrize("name", ["HOME", "AWS_SECRET_ACCESS_KEY", "TORCHREEL", "HF_TOKEN"])
def test_other_variables_are_not_recorded(name: str) -> None:
    assert environment.variables({name: "1"}) == {}


def test_secrets_on_the_command_line_are_redacted() -> None:
    argv = ["train.py", "--lr", "0.1", "--hub-token", "abc", "--password=x", "--epochs=3"]
    assert environment.arguments(argv) == [
        "train.py", "--lr", "0.1", "--hub-token", "<redacted>", "--password=<redacted>",
        "--epochs=3",
    ]  # fmt: skip


def test_facts_name_the_versions() -> None:
    import torch

    facts = environment.facts()
    assert facts["torch"] == torch.__version__
    assert {"python", "platform", "cpu", "num_threads", "cpu_count"} <= facts.keys()


def test_the_compiler_is_told_only_when_inductor_has_asked() -> None:
    from torch._inductor import cpp_builder

    cpp_builder.get_compiler_version_info.cache_clear()
    assert environment.compiler() == {}
    cpp_builder.get_compiler_version_info(cpp_builder.get_cpp_compiler())
    assert "version" in environment.compiler()["gxx"]
    assert "/" not in environment.compiler()["gxx"]


LAUNCHERS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")


@pytest.mark.parametrize(
    ("said", "rank"),
    [
        ({}, None),
        ({"RANK": "3"}, 3),
        ({"RANK": "3", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8"}, 5),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"RANK": "${RANK}"}, None),
    ],
)
def test_launchers_say_the_rank(
    said: dict[str, str], rank: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert environment.rank() == rank


JOINS = """
import tempfile, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    torch.compile(torch.sin, backend="eager")(torch.ones(2))
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, args=(tempfile.mktemp(),), nprocs=2)
"""


@pytest.mark.slow
def test_a_rank_that_only_the_process_group_knows_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "joins.py").write_text(JOINS)
    command = [sys.executable, "-m", "torchreel.cli", "record", "-o", "run.db", "--"]
    subprocess.run([*command, sys.executable, "joins.py"], cwd=tmp_path, check=True)
    ranks = set()
    for file in tmp_path.glob("*.db"):
        with Store.open(str(file)) as store:
            ranks |= {
                row.rank for row in queries.recordings(store) if queries.compiles(store, row.id)
            }
    assert ranks == {0, 1}
