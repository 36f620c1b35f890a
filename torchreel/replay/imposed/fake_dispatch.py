"""Follows each operator of fake modes, and prepares the cache for its lookup.

Lives here: torch's side, replaced for the length of a `with`.  Not here: what is imposed
(`fake_cache`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchreel.torch_compat.patching import hide_frame, patched
from torchreel.torch_compat.tensors.fake_tensors import FAKE_ERRORS


@dataclass
class CacheLookup:
    """A lookup in the fake-tensor cache that is about to be made."""

    cache: dict[Any, Any]
    key: Any
    env: ShapeEnv | None
    """The ShapeEnv that holds the cache; None where it is that of the process."""
    run: Callable[[], object]
    """Makes the lookup, and works the operator out where there is no entry."""

    def forget(self) -> None:
        """Drop the entry, if there is one."""
        self.cache.pop(self.key, None)

    def work_out(self) -> None:
        """Work the operator out, without symbolic arithmetic in the graph that is traced."""
        from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

        with disable_proxy_modes_tracing():
            self.run()

    @property
    def entry(self) -> object | None:
        """Return the entry of the cache."""
        return self.cache.get(self.key)

    @entry.setter
    def entry(self, entry: object) -> None:
        self.cache[self.key] = entry

    def sizes(self, entry: Any) -> tuple[tuple[object, ...], ...]:
        """Return the sizes of the tensors that an entry gives, spelled as they were made."""
        outputs = [output.metadata for output in getattr(entry, "output_infos", ())]
        return tuple(
            tuple(_size_of_entry(size, self.key) for size in metadata.shape)
            for metadata in outputs
            if metadata is not None
        )

    def entry_with(self, replacements: Mapping[sympy.Symbol, sympy.Expr]) -> object | None:
        """Return the entry that is made while the ShapeEnv has these replacements alone.

        The cache is empty meanwhile, and the ShapeEnv learns nothing from it.
        """
        env = self.env
        if env is None:
            return None
        now, cache = env.replacements, env.fake_tensor_cache
        env.fake_tensor_cache = {}
        _set_replacements(env, dict(replacements))
        try:
            with env.suppress_guards(), contextlib.suppress(*FAKE_ERRORS):
                self.work_out()
            return env.fake_tensor_cache.get(self.key)
        finally:
            env.fake_tensor_cache = cache
            _set_replacements(env, now)


def _set_replacements(env: ShapeEnv, replacements: dict[sympy.Symbol, sympy.Expr]) -> None:
    env.replacements = replacements
    env._replacements_version_counter += 1  # what was simplified before is void
    env._version_counter += 1


def _size_of_entry(size: Any, key: Any) -> object:
    """Return a size of an entry: a number, a symbolic number, or the place of one in the key."""
    from torch._subclasses._fake_tensor_utils import _SymIntOutputStub

    from torchreel.recorder.event_log.describe import size as spelled

    if not isinstance(size, _SymIntOutputStub):
        return size
    value = size.value
    return spelled(key.key[value].value if isinstance(value, int) else value._expr)


@contextlib.contextmanager
def around_fake_dispatch(
    follow: Callable[[str], contextlib.AbstractContextManager[None]],
    prepare: Callable[[CacheLookup], None],
) -> Iterator[None]:
    """Run each operator of fake modes in `follow(name)`, and `prepare` the cache for its lookup."""
    from torchreel.recorder.event_log.describe import op_name
    from torchreel.recorder.probes.fake_tensors import QUERIES, is_propagating

    dispatch, cached = FakeTensorMode.dispatch, FakeTensorMode._cached_dispatch_impl

    def following(mode: FakeTensorMode, func: Any, *args: Any, **kwargs: Any) -> object:
        name = op_name(func)
        unseen = name in QUERIES or is_propagating()
        try:
            with contextlib.nullcontext() if unseen else follow(name):
                return dispatch(mode, func, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def looking_up(mode: FakeTensorMode, func: Any, *args: Any) -> object:
        def run() -> object:
            return cached(mode, func, *args)

        found = _fake_cache_entry(mode, func, args[1], args[2])
        if found is not None and not is_propagating():
            prepare(CacheLookup(*found, run))
        try:
            return cached(mode, func, *args)
        except BaseException as error:
            hide_frame(error)
            raise

    with (
        patched(FakeTensorMode, "dispatch", following),
        patched(FakeTensorMode, "_cached_dispatch_impl", looking_up),
    ):
        yield


def _fake_cache_entry(
    mode: FakeTensorMode, func: Any, args: Any, kwargs: Any
) -> tuple[dict[Any, Any], object, ShapeEnv | None] | None:
    """Return the cache that an operator is looked up in, its key, and the ShapeEnv that holds the
    cache.

    None where it is not cached.
    """
    from torch._subclasses._fake_tensor_utils import _CacheKeyState
    from torch._subclasses.fake_tensor import _BypassDispatchCache

    state = _CacheKeyState(mode.shape_env)
    try:
        key = mode._cache_key(state, func, args, kwargs)
    except _BypassDispatchCache:
        return None
    if state.cache_on_shape_env() and state.shape_env is not None:
        return state.shape_env.fake_tensor_cache, key, state.shape_env
    return FakeTensorMode.cache, key, None
