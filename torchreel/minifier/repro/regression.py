"""`test_repro.py`: the repro as a test that fails while the bug is there, for a corpus.

It imports no pytest, so that it can be run with torch alone before it is handed out. A repro that
ends its process, or that sets things for the whole of it, runs in a process of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from torchreel.minifier.repro.check import CheckResult, check
from torchreel.minifier.scripts.script import Script
from torchreel.minifier.scripts.validation.scripts import check_program
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature

_IN_A_PROCESS = """{head}

import subprocess
import sys

REPRO = {text}


def test_repro():
    done = subprocess.run([sys.executable, "-c", REPRO], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
"""


def text_of_test(script: Script) -> str:
    """Return the text of the test.

    Raises `UnsupportedError` where the repro is not a text in it.
    """
    if script.test:
        return script.test
    head, _, rest = script.text.partition("\n\n")
    plain = rest.isascii() and "'''" not in rest and "\\" not in rest
    body = "\n" + rest.lstrip("\n")
    text = _IN_A_PROCESS.format(head=head, text=f"'''{body}'''" if plain else ascii(body))
    return check_program(text, _in_a_process(body))


def _in_a_process(repro: str) -> ast.Module:
    """Return the text that is expected: the template with the repro as a constant."""
    program = ast.parse(_IN_A_PROCESS.format(head="", text="REPRO"))
    assigned = program.body[2]
    assert isinstance(assigned, ast.Assign), "the template assigns the repro"
    assigned.value = ast.copy_location(ast.Constant(repro), assigned.value)
    return program


def check_as_test(
    script: Script,
    signature: Signature,
    imports: Sequence[str],
    command: Sequence[str] = (),
    *,
    trust: bool = False,
    accelerator: Mapping[str, Json] | None = None,
) -> CheckResult:
    """Return True if the test fails here, as the repro does: called without pytest, with torch
    alone.

    In a separate process, any end of the repro but a good one fails the test.
    """
    found = check(
        text_of_test(script),
        signature,
        imports,
        command,
        as_test=True,
        trust=trust,
        accelerator=accelerator,
    )
    seen = found.observed
    failed = seen is not None and seen.exception_types == ("AssertionError",)
    # The end of what the repro wrote is in the text of the assertion.
    names = {name.rpartition(".")[2] for name in signature.exception_types}
    if script.test or not failed or (names and not any(name in found.output for name in names)):
        return found
    return CheckResult(True, False, seen, found.exit_status, found.output, found.detail)
