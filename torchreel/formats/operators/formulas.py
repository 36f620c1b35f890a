"""The backward of a foreign operator, as the nodes that it left in a recorded joint graph.

Lives here: which nodes of a joint graph are the backward of which call (they have its number in
autograd's sequence), what goes in and comes out, and running such a part again. Not here: the
registration (`stand_ins`). The nodes are checked like those of any graph before any is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torchreel.errors import UnsupportedError
from torchreel.formats import namespaces
from torchreel.formats.graphs.codec import decode_graph
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.formats.graphs.operators import operators_of, short
from torchreel.formats.operators.answers import (
    OperatorAnswer,
    OperatorCall,
    Tensor,
    real_size,
)
from torchreel.formats.tensors.fakes import Decoder
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.torch_compat.shapes import ShapeEnv
from torchreel.torch_compat.tensors.fake_tensors import FakeTensorMode

_GETITEM = "fn:_operator.getitem"


@dataclass(frozen=True)
class Formula:
    """The backward of one call."""

    call: OperatorCall
    graph: Json
    given: tuple[Json, ...]
    """For each input of the graph: ["grad", n], ["in", n], ["out", n] or ["size", expression]."""
    returns: int
    """The number of arguments of the operator: the graph returns a gradient, or None, for each."""

    @classmethod
    def of(cls, data: Json) -> Formula:
        """Return the formula of a document.  Raises `UnsupportedError` when it is malformed."""
        if not isinstance(data, Mapping) or not isinstance(data.get("given"), list):
            raise UnsupportedError(f"malformed backward of an operator {data!r:.80}")
        call = OperatorCall.of(data.get("call"))
        return cls(call, data.get("graph"), tuple(data["given"]), len(call.given))  # type: ignore[arg-type]

    def is_for(self, live: Sequence[object]) -> bool:
        """Return True if live arguments are those of the call, as far as the recording tells."""
        return self.call.likeness(live) == 2 * len(self.call.given)

    def prepare(self) -> None:
        """Build the graph, while nothing is recorded yet."""
        _ = self._function

    def saved(self, count: int) -> tuple[int, ...]:
        """Return the places of tensors to save: arguments first, then results from `count` on."""
        places = [
            row[1] + (count if row[0] == "out" else 0)
            for row in self.given
            if isinstance(row, list) and row[0] in ("in", "out") and isinstance(row[1], int)
        ]
        return tuple(dict.fromkeys(places))

    @cached_property
    def _function(self) -> Any:
        decoder = Decoder(FakeTensorMode(shape_env=ShapeEnv()), {}, {})
        return decode_graph(GraphDoc.from_json(self.graph), decoder)

    def run(
        self, given: Sequence[object], results: Sequence[object], grads: Sequence[object]
    ) -> Sequence[object]:
        """Return the gradients of the arguments."""
        sizes = OperatorAnswer(self.call, given, real_size)
        known = {"grad": grads, "in": given, "out": results}
        values = []
        for row in self.given:
            if not isinstance(row, list) or len(row) != 2:
                raise UnsupportedError(f"malformed backward of an operator {row!r:.80}")
            kind, which = row
            if kind == "size":
                values.append(sizes.number(which))
            elif kind in known and isinstance(which, int) and 0 <= which < len(known[str(kind)]):
                values.append(known[str(kind)][which])
            else:
                raise UnsupportedError(f"malformed backward of an operator {row!r:.80}")
        found: Sequence[object] = self._function(*values)
        return found


def formulas_of(joint: GraphDoc) -> dict[str, list[Json]]:
    """Return the backward of each call of a foreign operator in a joint graph, by operator name.

    Left out is a backward that uses values other than those of the call and gradients.
    """
    found: dict[str, list[Json]] = {}
    table = operators_of([joint])
    for node in joint.nodes:
        if not _is_call(node):
            continue
        name = node.target.removeprefix("op:")
        made = _Extraction(joint, node).formula()
        if name in table and made is not None:
            found.setdefault(name, []).append(made)
    return found


def _is_call(node: NodeDoc) -> bool:
    forward = node.op == "call_function" and not node.meta.get("autograd_backward")
    return forward and node.target.startswith("op:") and namespaces.is_custom(node.target)


def _arguments(tree: Json) -> Iterator[Json]:
    """Yield the arguments of a node in a row, lists taken apart."""
    for item in list_only(tree):
        if isinstance(item, list):
            yield from _arguments(item)
        else:
            yield item


class _Extraction:
    """The backward of one call, cut out of its joint graph."""

    def __init__(self, joint: GraphDoc, node: NodeDoc) -> None:
        self.joint, self.node = joint, node
        kwargs = as_object(node.kwargs)
        self.arguments = [
            *_arguments(node.args),
            *_arguments([kwargs[key] for key in sorted(kwargs)]),
        ]
        number = node.meta.get("seq_nr")
        backward = [one for one in joint.nodes if one.is_call and one.meta.get("autograd_backward")]
        self.part = [one for one in backward if one.meta.get("seq_nr") == number]
        self.inside = {one.name for one in self.part}
        self.given: dict[str, Json] = {}

    def formula(self) -> Json:
        """Return the part as a document; None if there is none, or if it has no portable form."""
        for one in self.part:
            for name in one.operands:
                if name not in self.inside and name not in self.given:
                    found = self._origin(name)
                    if found is None:
                        return None
                    self.given[name] = found
        returned = self._returned()
        if not self.part or not any(returned):
            return None
        inputs = [NodeDoc(name, "placeholder", name) for name in self.given]
        nodes = [replace(one, meta={}) for one in self.part]
        values: list[Json] = [None if name is None else {"n": name} for name in returned]
        output = NodeDoc("output", "output", "output", [{"t": values}])
        graph = GraphDoc((*inputs, *nodes, output))
        return {
            "call": self._call(),
            "graph": graph.to_json(),
            "given": list(self.given.values()),
        }

    def _call(self) -> Json:
        """Return the arguments of the call, described."""
        return {"args": [self._described(item) for item in self.arguments], "result": None}

    def _described(self, item: Json) -> Json:
        if isinstance(item, Mapping) and set(item) == {"n"}:
            node = self.joint.by_name.get(str(item["n"]))
            return {"value": None if node is None else short(node.value)}
        return {"literal": item}

    def _origin(self, name: str) -> Json:
        """Return the origin of a value that the backward uses; None if there is none."""
        for number, item in enumerate(self.arguments):
            if item == {"n": name}:
                return ["in", number]
        node = self.joint.by_name[name]
        if name == self.node.name:
            return ["out", 0]
        if node.target == _GETITEM and node.operands == (self.node.name,):
            args = list_only(node.args)
            return ["out", args[1]]
        value = node.value
        if isinstance(value, Mapping) and value.get("k") == "symint":
            return ["size", value.get("expr")]
        if node.meta.get("autograd_backward") or node.meta.get("partitioner_tag") == "is_backward":
            return ["grad", self._result_of(node)]
        return None

    def _result_of(self, gradient: NodeDoc) -> int:
        """Return the number of the result that this is the gradient of, found by its sizes."""
        known = [row for row in self.given.values() if isinstance(row, list)]
        taken = [row[1] for row in known if row[0] == "grad"]
        value = self.node.value
        items = as_object(value).get("items")
        results = items if isinstance(items, list) else [value]
        wanted = Tensor.of(gradient.value)
        for number, result in enumerate(results):
            found = Tensor.of(result)
            if wanted is None or found is None or number in taken:
                continue
            if (found.size, found.dtype) == (wanted.size, wanted.dtype):
                return number
        return 0

    def _returned(self) -> list[str | None]:
        """Return the gradient node of each argument, by sizes and users; None if none fits."""
        left = [one for one in self.part if self._leaves(one)]
        found: list[str | None] = []
        for item in self.arguments:
            node = (
                self.joint.by_name.get(str(item["n"]))
                if isinstance(item, Mapping) and set(item) == {"n"}
                else None
            )
            wanted = None if node is None else Tensor.of(node.value)
            fitting = [one for one in left if wanted is not None and _is_like(one, wanted)]
            fitting.sort(key=lambda one: not self._goes_to(one, node))
            found.append(fitting[0].name if fitting else None)
            left = [one for one in left if not fitting or one is not fitting[0]]
        return found

    def _users(self, name: str) -> list[NodeDoc]:
        return [one for one in self.joint.nodes if name in one.operands]

    def _leaves(self, node: NodeDoc) -> bool:
        users = self._users(node.name)
        return not users or any(user.name not in self.inside for user in users)

    def _goes_to(self, gradient: NodeDoc, argument: NodeDoc | None) -> bool:
        """Return True if a gradient is used by the backward of the call that made an argument."""
        number = None if argument is None else argument.meta.get("seq_nr")
        return number is not None and any(
            user.meta.get("seq_nr") == number for user in self._users(gradient.name)
        )


def _is_like(gradient: NodeDoc, wanted: Tensor) -> bool:
    found = Tensor.of(gradient.value)
    return found is not None and (found.size, found.dtype) == (wanted.size, wanted.dtype)
