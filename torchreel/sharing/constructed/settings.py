"""Config, ambient state, the ShapeEnv, and what else a stage is given: entry by entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args, get_origin

from torchreel.formats.checkpoints import ambient, config
from torchreel.formats.shape_env import snapshots
from torchreel.sharing.constructed.scalars import Symbols, constant_of, number_of, refused
from torchreel.sharing.constructed.sources import source
from torchreel.sharing.pseudonyms import Pseudonyms
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.torch_compat import configs

_FAKE_MODE = ("allow_non_fake_inputs", "allow_scalar_outputs", "static_shapes", "allow_meta")
_ARGUMENTS = (
    "is_backward",
    "cpp_wrapper",
    "fx_wrapper",
    "is_inference",
    "layout_opt",
    "cudagraphs",
)
_WORDS = ("highest", "high", "medium", "python", "autograd")
_AMBIENT = frozenset({*ambient.STATE, "dispatch_below", "compiled_autograd"})
_ASSUMPTION = re.compile(
    r"!?(?:integer|positive|negative|nonnegative|nonpositive|zero|nonzero|real|finite|infinite|"
    r"even|odd|rational|commutative|extended_real)"
)


def config_entries(entries: object) -> list[Json]:
    """Return the entries that torch knows, with values that say nothing of a program."""
    known = configs.config_modules()
    made: list[Json] = []
    for entry in entries if isinstance(entries, (list, tuple)) else ():
        module, key = (str(entry.get(name)) for name in ("module", "key"))
        owner = known.get(module)
        if owner is None or key not in configs.config_keys(owner):
            continue
        value = entry.get("value")
        if config.is_portable(module, key, value) and _is_plain(value, _choices(owner, key)):
            made.append({"module": module, "key": key, "value": value, "portable": True})
    return made


def _choices(owner: object, key: str) -> frozenset[object]:
    """Return the texts that an entry may have by its own declaration."""
    entry = owner._config[key]  # type: ignore[attr-defined]
    kind = getattr(entry, "value_type", None)
    kinds = [kind, *get_args(kind)]
    found = {word for one in kinds if get_origin(one) is Literal for word in get_args(one)}
    return frozenset({*found, entry.default} if isinstance(entry.default, str) else found)


def _is_plain(value: Json, choices: frozenset[object]) -> bool:
    if isinstance(value, str):
        return value in choices
    if isinstance(value, list):
        return all(_is_plain(item, choices) for item in value)
    if isinstance(value, Mapping) and set(value) == {"t"}:
        return _is_plain(value["t"], choices)
    return value is None or isinstance(value, (bool, int)) or _is_float(value)


def _is_float(value: Json) -> bool:
    return isinstance(value, Mapping) and set(value) == {"f"}


def ambient_state(data: Mapping[str, Json]) -> dict[str, Json]:
    """Return the ambient state that torch has a name for; threads are the machine's."""
    return {
        name: _ambient(data[name]) for name in sorted(_AMBIENT & set(data)) if name != "num_threads"
    }


def _ambient(value: Json) -> Json:
    if isinstance(value, list):
        return [_ambient(item) for item in value]
    if isinstance(value, Mapping) and set(value) == {"dtype"}:
        return {"dtype": constant_of("dtype", value["dtype"])}
    if isinstance(value, str):
        if value not in _WORDS:
            raise refused("the ambient state", value)
        return value
    return number_of(value)


def shape_env(data: Mapping[str, Json], symbols: Symbols, names: Pseudonyms) -> dict[str, Json]:
    """Return the symbols of a case, their hints, ranges and sources."""
    settings = as_object(data.get("settings"))
    table = as_object(data.get("symbols"))
    state = as_object(data.get("state"))
    makers = {
        "backed_var_to_val": lambda value: _hint(value, symbols),
        "var_to_range": symbols_of_range(symbols),
        "var_to_sources": lambda value: source(value, names),
        "var_to_hint_override": number_of,
    }
    made = {key: _rows(state[key], symbols, maker) for key, maker in makers.items() if key in state}
    sets = {
        key: _set(state[key], symbols) for key in ("size_like", "unbacked_inputs") if key in state
    }
    return {
        "settings": {key: bool(settings[key]) for key in snapshots.SETTINGS if key in settings},
        "symbols": {symbols.name(str(name)): _assumptions(given) for name, given in table.items()},
        "state": {**made, **sets},
    }


def symbols_of_range(symbols: Symbols):  # type: ignore[no-untyped-def]
    """Return the maker of a range over symbols."""

    def make(value: Json) -> Json:
        if not isinstance(value, list) or len(value) != 2:
            raise refused("the range", value)
        return [symbols.expression(bound) for bound in value]

    return make


def _hint(value: Json, symbols: Symbols) -> Json:
    if isinstance(value, list) and len(value) == 1:
        return [symbols.expression(value[0])]
    return number_of(value)


def _rows(data: Json, symbols: Symbols, maker):  # type: ignore[no-untyped-def]
    if not isinstance(data, list):
        raise refused("the state of a ShapeEnv", data)
    return [[symbols.name(str(row[0])), maker(row[1])] for row in data]


def _set(data: Json, symbols: Symbols) -> Json:
    return [symbols.name(str(item)) for item in list_only(data)]


def _assumptions(given: Json) -> Json:
    found = [str(item) for item in list_only(given)]
    if not all(_ASSUMPTION.fullmatch(item) for item in found):
        raise refused("the assumptions", given)
    return list(found)


def extra(data: Mapping[str, Json], backend: str, symbols: Symbols) -> dict[str, Json]:
    """Return the `extra` of a checkpoint: the entry point's arguments besides graph and inputs."""
    mode, kwargs = as_object(data.get("fake_mode")), as_object(data.get("kwargs"))
    floats = data.get("specialized_floats")
    made: dict[str, Json] = {"backend": backend}
    if "options" in data:
        made["options"] = config_entries(data["options"])
    if mode:
        made["fake_mode"] = {key: bool(mode[key]) for key in _FAKE_MODE if key in mode}
    if kwargs:
        made["kwargs"] = {
            key: kwargs[key] for key in _ARGUMENTS if key in kwargs and _is_truth(kwargs[key])
        }
    if isinstance(floats, list):
        made["specialized_floats"] = [symbols.name(str(item)) for item in floats]
    return made


def _is_truth(value: Json) -> bool:
    return value is None or isinstance(value, bool)
