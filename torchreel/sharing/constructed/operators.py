"""The program's own operators under pseudonyms: schema, tags, and what its calls returned.

A bundle has a stand-in of each (`formats.operators`), which computes nothing. Code is left out: the
formulas of its backward too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from torchreel.formats import namespaces
from torchreel.sharing.constructed.arguments import target_of_torch
from torchreel.sharing.constructed.descriptions import Descriptions
from torchreel.sharing.constructed.scalars import refused
from torchreel.sharing.neutral import is_plain_float, is_plain_integer, neutral_choices
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only

_TYPES = frozenset({
    "Tensor", "int", "float", "bool", "str", "complex", "SymInt", "SymFloat", "SymBool", "Scalar",
    "Device", "ScalarType", "Layout", "MemoryFormat", "Generator", "None", "True", "False", "Any",
    "Dict", "a", "b", "c", "d", "e",
})  # fmt: skip
_PARAMETER = re.compile(r"([A-Za-z_]\w*)(?=\s*(?:=|,|\)|$))")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_DEFAULT = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?(?![\w.\]])")
_EFFECTS = ("ORDERED",)
_TRUTHS = ("python", "fake", "autograd", "decomposes")


class Operators:
    """Names of operators, and their descriptions."""

    def __init__(self, descriptions: Descriptions) -> None:
        self._descriptions = descriptions
        self._pseudonyms = descriptions.pseudonyms

    def target(self, text: str) -> str:
        """Return a target: torch's by its name, another operator by a pseudonym."""
        if not namespaces.is_custom(text):
            return target_of_torch(text)
        kind, _, name = text.partition(":")
        return f"{kind}:{self.name(name)}"

    def name(self, name: str) -> str:
        """Return the pseudonym of `namespace.operator`, with or without an overload."""
        namespace, _, rest = name.partition(".")
        operator, dot, overload = rest.partition(".")
        of = self._pseudonyms.of
        last = overload if overload in ("", "default") else of("o", overload)
        return f"{of('n', namespace)}.{of('f', operator)}{dot}{last}"

    def parameter(self, name: str) -> str:
        """Return the pseudonym of a parameter of an operator."""
        return self._pseudonyms.of("p", name)

    def table(self, data: Json) -> dict[str, Json]:
        """Return the descriptions of operators by name."""
        if not isinstance(data, Mapping):
            raise refused("a table of operators", data)
        return {self.name(str(name)): self._described(str(name), one) for name, one in data.items()}

    def _described(self, name: str, data: Json) -> Json:
        if not isinstance(data, Mapping):
            raise refused("the operator", data)
        tags, kernels, calls = (list_only(data.get(key)) for key in ("tags", "kernels", "calls"))
        effect = data.get("effect")
        return {
            "schema": self._schema(name, str(data.get("schema"))),
            "tags": [
                str(tag) for tag in tags if isinstance(getattr(torch.Tag, str(tag), 0), torch.Tag)
            ],
            "kernels": [str(key) for key in kernels if hasattr(torch._C.DispatchKey, str(key))],
            **{key: data.get(key) is True for key in _TRUTHS},
            "effect": effect if effect in _EFFECTS else None,
            "calls": [self._call(call) for call in calls],
        }

    def _schema(self, name: str, text: str) -> str:
        """Return a schema with the types, and other names."""
        head, bracket, rest = text.partition("(")
        if not bracket or head.replace("::", ".").partition(".")[0] != name.partition(".")[0]:
            raise refused("the schema", text)
        namespace, operator, overload = self.name(name).split(".")
        short = operator if overload == "default" else f"{operator}.{overload}"
        arguments, arrow, results = _QUOTED.sub('""', rest).partition("->")
        arguments = _DEFAULT.sub(_plain_default, arguments)
        names = {argument.name for argument in torch._C.parse_schema(text).arguments}
        made = _PARAMETER.sub(
            lambda match: self.parameter(match[1]) if match[1] in names else match[1], arguments
        )
        results = _PARAMETER.sub(lambda m: "" if m[1] not in _TYPES else m[1], results)
        whole = f"{namespace}::{short}({made}{arrow}{results}"
        unknown = set(re.findall(r"[A-Za-z_]\w*", made + results)) - _TYPES
        if not unknown <= {self.parameter(one) for one in names}:
            raise refused("the schema", text)
        return whole

    def _call(self, data: Json) -> Json:
        fields = as_object(data)
        kwargs = as_object(fields.get("kwargs"))
        return {
            "args": [self._argument(item) for item in list_only(fields.get("args"))],
            "kwargs": {self.parameter(str(k)): self._argument(v) for k, v in kwargs.items()},
            "result": self._descriptions.of(fields.get("result")),
        }

    def _argument(self, data: Json) -> Json:
        fields = as_object(data)
        if "value" in fields:
            return {"value": self._descriptions.of(fields["value"])}
        if "list" in fields:
            return {"list": [self._argument(item) for item in list_only(fields["list"])]}
        return {"literal": self._literal(fields.get("literal"))}

    def _literal(self, data: Json) -> Json:
        """Return a literal if it is a plain number or an option of torch's, else nothing.

        A stand-in takes the call whose arguments are most alike: it is no worse without a literal.
        """
        from torchreel.sharing.constructed.arguments import CallArguments

        maker = CallArguments(self._descriptions.symbols, self._pseudonyms, {}, self.target)
        made = maker.of(data)
        tells = isinstance(made, str) or neutral_choices(made, frozenset())
        return None if tells else made


def _plain_default(match: re.Match[str]) -> str:
    """Return a default that says nothing: calls in a graph have most arguments spelled out."""
    text = match[0]
    if text.lstrip("-").isdigit():
        return text if is_plain_integer(int(text), frozenset()) else "2"
    return text if is_plain_float(float(text)) else "0.5"
