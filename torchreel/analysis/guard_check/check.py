"""Judges recorded guards against described inputs, without the model.

Lives here: a verdict for each check of each guard.  Not here: the grammar of inputs
(`inputs`), the language of checks (`code`).  What can't be judged from the description
alone (modules, globals, identities, the state of the process) is unknown, never passed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchreel.analysis.event_log import CompileEventLog
from torchreel.analysis.guard_check.code import parse, value_of
from torchreel.analysis.guard_check.inputs import Described, Inputs
from torchreel.errors import UnsupportedError
from torchreel.events.guards import Guard, GuardManager
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Event, StackFrame

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"


@dataclass(frozen=True)
class Check:
    """One check of a guard, its verdict, and why it fails or can't be judged."""

    code: str
    verdict: str
    reason: str = ""


@dataclass(frozen=True)
class Judged:
    """A guard with its checks; it fails when one does, and passes when all do."""

    address: str
    type: str
    expression: str
    checks: tuple[Check, ...]
    line: StackFrame | None

    @property
    def verdict(self) -> str:
        """pass, fail or unknown."""
        found = {check.verdict for check in self.checks}
        return FAIL if FAIL in found else UNKNOWN if UNKNOWN in found or not found else PASS

    def to_json(self) -> dict[str, Json]:
        """Return the guard as one object."""
        return {
            "address": self.address, "type": self.type, "expression": self.expression,
            "verdict": self.verdict,
            "checks": [dict(vars(check)) for check in self.checks],
            "file": self.line.file if self.line else None,
            "line": self.line.line if self.line else None,
        }  # fmt: skip


def guards_of(log: CompileEventLog) -> list[tuple[Event, Guard]]:
    """Return the guards of a compile, as its last attempt to install them made them."""
    managers = log.of(GuardManager.kind)
    last = managers[-1].seq if managers else None
    return [(event, guard) for event, guard in log.typed(Guard) if event.cause == last]


def judge(log: CompileEventLog, inputs: Inputs) -> list[Judged]:
    """Return a verdict for every guard of a compile."""
    found = [
        Judged(
            log.place(event.seq), event.name, guard.expression,
            tuple(_checks(event.name, guard, inputs)), log.line(event),
        )
        for event, guard in guards_of(log)
    ]  # fmt: skip
    return found + [
        Judged(log.place(event.seq), "NO_TENSOR_ALIASING", "", (_apart(names, inputs),), None)
        for event, manager in log.typed(GuardManager)[-1:]
        if len(names := manager.no_aliasing) > 1
    ]


def _checks(name: str, guard: Guard, inputs: Inputs) -> Iterator[Check]:
    for part in guard.code:
        yield _checked(part, name, guard, inputs)
    if not guard.code and name != "SHAPE_ENV":
        yield Check("", UNKNOWN, "its check is not in the event log as code")
    elif not guard.code:
        yield Check("", PASS, "it asks for nothing")


def _checked(part: str, name: str, guard: Guard, inputs: Inputs) -> Check:
    try:
        reason = _reason(part, name, guard, inputs)
    except UnsupportedError as error:
        return Check(part, UNKNOWN, str(error))
    return Check(part, FAIL, reason) if reason else Check(part, PASS)


def _reason(part: str, name: str, guard: Guard, inputs: Inputs) -> str:
    """Return the reason why a check fails; '' if it holds."""
    if part.startswith("check_tensor("):
        return _tensor_reason(parse(part), inputs)
    identity = _IDENTITY.match(part)
    if identity is not None:
        return _identity_reason(identity, guard, inputs)
    node = parse(part)
    if not value_of(node, inputs):
        return f"does not hold{_seen(node, inputs)}"
    return _type_reason(guard, inputs) if name in _TYPED else ""


_IDENTITY = re.compile(r"___check_(?P<what>type|obj)_id\((?P<expression>.*), \d+\)", re.DOTALL)


def _identity_reason(check: re.Match[str], guard: Guard, inputs: Inputs) -> str:
    """Judge a check of identity: the description of an input has its class, not its identity."""
    found, wanted = value_of(parse(check["expression"]), inputs), guard.class_
    if wanted is None or type_name(found) != wanted:
        if wanted is None:
            raise UnsupportedError("the event log does not name the class")
        return f"expected {wanted}, found {type_name(found)}"
    if check["what"] == "obj" and wanted != "NoneType":
        raise UnsupportedError("which object it is can't be told from a description")
    return ""


_TYPED = ("EQUALS_MATCH", "CONSTANT_MATCH")
"""Guards that compare the class as well as the value: 1 is not True, and 2 is not 2.0."""


def _type_reason(guard: Guard, inputs: Inputs) -> str:
    if guard.class_ is None or not guard.expression:
        return ""
    found = type_name(value_of(parse(guard.expression), inputs))
    return "" if found == guard.class_ else f"expected {guard.class_}, found {found}"


def type_name(value: object) -> str:
    """Return the class of an input, as the event log names classes."""
    return value.type_name if isinstance(value, Described) else type(value).__qualname__


def _seen(node: ast.expr, inputs: Inputs) -> str:
    """Return the values of a comparison's sides, as `: 17 == 4`; of several, the first that fails.

    '' for anything else, and if a value is unknown.
    """
    if isinstance(node, ast.BoolOp):
        return next((_seen(part, inputs) for part in node.values if _fails(part, inputs)), "")
    if not isinstance(node, ast.Compare):
        return ""
    signs = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
    try:
        sides = [repr(value_of(side, inputs)) for side in (node.left, *node.comparators)]
    except UnsupportedError:
        return ""
    words = [sides[0]]
    for sign, side in zip(node.ops, sides[1:], strict=True):
        words += [signs.get(type(sign), "is"), side]
    return f": {' '.join(words)}"


def _fails(node: ast.expr, inputs: Inputs) -> bool:
    try:
        return not value_of(node, inputs)
    except UnsupportedError:
        return False


# -- tensors --------------------------------------------------------------------------------------

_PLAIN_KEYS = {
    "CPU", "CUDA", "XPU", "MPS", "Meta", "BackendSelect", "ADInplaceOrView", "AutogradCPU",
    "AutogradCUDA", "AutogradXPU", "AutogradMPS", "AutogradMeta",
}  # fmt: skip
"""Dispatch keys of a plain dense tensor, its device among them."""


def _tensor_reason(node: ast.expr, inputs: Inputs) -> str:
    """Return the reasons why a tensor fails `check_tensor(...)`; '' if it passes."""
    if not isinstance(node, ast.Call) or len(node.args) < 4:
        raise UnsupportedError("its check of a tensor is malformed")
    found = value_of(node.args[0], inputs)
    if not isinstance(found, Described):
        return f"expected a tensor, found {type_name(found)}"
    named = {word.arg: word.value for word in node.keywords}
    reasons = [_class(node.args[1], found), _keys(node.args[2], found)]
    reasons += [_fact("dtype", ast.unparse(node.args[3]), f"torch.{found.dtype}")]
    reasons += [check(named, found) for check in (_grad, _rank, _sizes, _strides, _device)]
    return "; ".join(reason for reason in reasons if reason)


def _fact(what: str, wanted: object, found: object) -> str:
    return "" if wanted == found else f"expected {what} {wanted}, found {found}"


def _class(node: ast.expr, found: Described) -> str:
    return _fact("class", ast.unparse(node), found.type_name.rpartition(".")[2])


def _keys(node: ast.expr, found: Described) -> str:
    keys = [ast.unparse(arg) for arg in node.args] if isinstance(node, ast.Call) else []
    odd = [key for key in keys if key not in _PLAIN_KEYS]
    if odd or "ADInplaceOrView" not in keys:
        raise UnsupportedError(f"a tensor with the dispatch keys {', '.join(keys)} is not plain")
    devices = [key.lower() for key in keys if f"Autograd{key}" in keys]
    return "" if found.device in devices else _fact("device", ", ".join(devices), found.device)


def _literal(named: Mapping[str | None, ast.expr], name: str) -> Any:
    try:
        return ast.literal_eval(named[name])
    except (KeyError, ValueError):
        raise UnsupportedError(f"its check of a tensor does not say the {name}") from None


def _grad(named: Mapping[str | None, ast.expr], found: Described) -> str:
    return _fact("requires_grad", _literal(named, "requires_grad"), found.requires_grad)


def _rank(named: Mapping[str | None, ast.expr], found: Described) -> str:
    return _fact("rank", len(_literal(named, "size")), len(found.size))


def _sizes(named: Mapping[str | None, ast.expr], found: Described) -> str:
    return _each("size", _literal(named, "size"), found.size)


def _strides(named: Mapping[str | None, ast.expr], found: Described) -> str:
    return _each("stride", _literal(named, "stride"), found.stride)


def _each(what: str, wanted: Sequence[int | None], found: Sequence[int]) -> str:
    """Return sizes or strides; one that is None may be any."""
    if len(wanted) != len(found):
        return ""
    wrong = [
        f"expected {what} {want} at {at}, found {have}"
        for at, (want, have) in enumerate(zip(wanted, found, strict=True))
        if want is not None and want != have
    ]
    return "; ".join(wrong)


def _device(named: Mapping[str | None, ast.expr], found: Described) -> str:
    return _fact("device index", _literal(named, "device"), found.index)


def _apart(names: Sequence[str], inputs: Inputs) -> Check:
    """Return tensors that must not be one and the same: those that are described apart are not."""
    code = f"no two of {', '.join(names)} are the same tensor"
    missing = [name for name in names if not isinstance(_described(name, inputs), Described)]
    if missing:
        return Check(code, UNKNOWN, f"{', '.join(missing)} not described")
    return Check(code, PASS)


def _described(name: str, inputs: Inputs) -> object:
    try:
        return value_of(parse(name), inputs)
    except UnsupportedError:
        return None


def counts(judged: Sequence[Judged]) -> dict[str, int]:
    """Return the number of guards for each verdict: pass, fail and unknown."""
    found = [guard.verdict for guard in judged]
    return {verdict: found.count(verdict) for verdict in (PASS, FAIL, UNKNOWN)}
