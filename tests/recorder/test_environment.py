"""What is said of the environment, and what never is."""

import pytest

from torchreel.recorder import environment


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
