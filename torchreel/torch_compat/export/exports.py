"""Exported programs, their verifiers and their decompositions."""

from __future__ import annotations

from typing import Any

import torch

from torchreel.errors import UnsupportedError


def default_decompositions() -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the tables with which torch decomposes an exported program, if it is given none.

    For operators that are defined by others, and for those that AOTAutograd traces.
    """
    from torch.export import exported_program

    table = exported_program.default_decompositions().materialize()
    return exported_program._split_decomp_table_to_cia_and_python_decomp(table)  # type: ignore[return-value]


def decompositions_of(operator: Any) -> dict[str, Any]:
    """Return torch's own decompositions of an operator, by kind ('preserve', 'decompose', ...)."""
    from torch._decomp import global_decomposition_table
    from torch._export import utils

    found = {"preserve": utils._special_op_to_preserve_cia}
    if isinstance(operator, torch._ops.OpOverload):
        found["decompose"] = utils._get_decomp_for_cia(operator)
    for kind, table in global_decomposition_table.items():
        if operator in table:
            found[kind] = table[operator]
    return found


def export_verifier(dialect: str) -> Any:
    """Return the verifier of exported programs of a dialect ('ATEN', 'TRAINING').

    Raises `UnsupportedError` for an unknown dialect.
    """
    from torch._export.verifier import load_verifier

    try:
        return load_verifier(dialect)
    except KeyError:
        raise UnsupportedError(f"this torch has no dialect {dialect!r:.60} of exports") from None


def guards_of_export(program: Any) -> list[str]:
    """Return the conditions on the inputs of an exported program, as code."""
    return list(program._guards_code)


def decompose(program: Any, composite: Any, python: Any, loss: int | None, triton: bool) -> Any:
    """Decompose an exported program as its `run_decompositions` does."""
    from torch.export import exported_program

    return exported_program._decompose_exported_program(
        program,
        cia_to_decomp=composite,
        python_decomp_table=python,
        joint_loss_index=loss,
        decompose_custom_triton_ops=triton,
    )
