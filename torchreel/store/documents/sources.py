"""Dynamo's Sources as the Python that guards name them by, from their recorded form.

Lives here: the spelling of each Source class (`name` in torch/_dynamo/source.py).  Not here: the
Source itself (`torchreel.formats.sources`), which needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json

_MAX_DEPTH = 100

_TEMPLATES = {
    "LocalSource": "L[{local_name!r}]", "SyntheticLocalSource": "SYNTHETIC_LOCAL[{local_name!r}]",
    "TempLocalSource": "{local_name}", "RandomValueSource": "random_value_{random_call_index}",
    "GlobalSource": "G[{global_name!r}]", "GlobalWeakRefSource": "G[{global_name!r}]()",
    "GenericAttrSource": "object.__getattribute__({base}, {member!r})",
    "GradSource": "{base}.{member}", "TypeSource": "type({base})",
    "TypeDictSource": "dict({base}.__dict__)", "TypeMROSource": "{base}.__mro__",
    "CodeSource": "{base}.__code__",
    "ClosureSource": "{base}.__closure__", "WeakRefCallSource": "{base}()",
    "CallFunctionNoArgsSource": "{base}()", "SkipGuardSource": "{base}",
    "TensorPropertySource": "{base}.{prop}", "NegateSource": "{base}.__neg__()",
    "ConvertIntSource": "cast_symbool_to_symint_guardless({base})",
    "DynamicScalarSource": "int({base})", "CallMethodItemSource": "{base}.item()",
    "FloatTensorSource": "___as_tensor({base})", "NumpyTensorSource": "___from_numpy({base})",
    "SubclassAttrListSource": "{base}.__tensor_flatten__()[0]",
    "AttrProxySource": "{base}.get_base()", "GetItemSource": "{base}[{index!r}]",
    "ConstDictKeySource": "list(dict.keys({base}))[{index!r}]",
    "DictGetItemSource": "{base}[{index!r}]", "ConstantSource": "{source_name}",
    "ShapeEnvSource": "", "GlobalStateSource": "", "BackwardStateSource": "",
}  # fmt: skip
_ATTRIBUTES = (
    "AttrSource", "CellContentsSource", "ParamBufferSource", "UnspecializedParamBufferSource",
    "UnspecializedNNModuleSource", "NNModuleSource", "UnspecializedBuiltinNNModuleSource",
    "FSDPNNModuleSource",
)  # fmt: skip
_PROPERTIES = {"SIZE": "size()[{}]", "STRIDE": "stride()[{}]", "STORAGE_OFFSET": "storage_offset()"}


def source_name(data: Json, depth: int = 0) -> str:
    """Return the expression that a recorded Source stands for: `L['x'].size()[0]`.

    A class without a spelling here comes out as its name and base, `SomeSource(L['x'])`.
    """
    if not isinstance(data, Mapping) or depth > _MAX_DEPTH:
        return str(data)
    kind = str(data.get("source"))
    if kind == "opaque":
        return str(data.get("name"))
    base = source_name(data.get("base"), depth + 1)
    if kind in _ATTRIBUTES:
        return _attribute(base, data)
    if kind == "DefaultsSource":
        return _default(base, data)
    template = _TEMPLATES.get(kind)
    if template is None:
        return f"{kind}({base})" if "base" in data else kind
    return template.format_map(_Fields(base, data, depth))


class _Fields(dict[str, Any]):
    """The fields that a template may name."""

    def __init__(self, base: str, data: Mapping[str, Json], depth: int) -> None:
        super().__init__(base=base)
        self._data, self._depth = data, depth

    def __missing__(self, name: str) -> object:
        value = self._data.get(name)
        if name == "prop":
            prop = value.get("name") if isinstance(value, Mapping) else None
            # Never the text of a stranger's store: it could name a width of gigabytes.
            known = _PROPERTIES.get(str(prop))
            return str(prop) if known is None else known.format(self._data.get("idx"))
        if name == "index":
            return _Index(value, self._depth)
        return value


class _Index:
    """An index as it stands between brackets."""

    def __init__(self, value: Json, depth: int) -> None:
        self._value, self._depth = value, depth

    def __repr__(self) -> str:
        value = self._value
        if isinstance(value, Mapping) and "source" in value:
            return source_name(value, self._depth + 1)
        if isinstance(value, str):
            return repr(value)
        return spelling.argument(value, str)


def _attribute(base: str, data: Mapping[str, Json]) -> str:
    member = data.get("member")
    if member is None:
        return base
    name = str(member)
    return f"{base}.{name}" if name.isidentifier() else f"getattr({base}, {name!r})"


def _default(base: str, data: Mapping[str, Json]) -> str:
    key = data.get("idx_key")
    return f"{base}.__kwdefaults__['{key}']" if data.get("is_kw") else f"{base}.__defaults__[{key}]"
