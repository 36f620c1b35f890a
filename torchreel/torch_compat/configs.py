"""The config modules whose entries decide a compile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from torchreel.torch_compat.patching import patched


def config_modules() -> dict[str, ModuleType]:
    """Return the configuration modules whose entries decide a compile."""
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config
    import torch.compiler.config
    import torch.fx.experimental._config

    return {
        "dynamo": torch._dynamo.config,
        "functorch": torch._functorch.config,
        "inductor": torch._inductor.config,
        "fx": torch.fx.experimental._config,
        "compiler": torch.compiler.config,
    }


def non_default_entries(module: ModuleType) -> dict[str, object]:
    """Return the entries of a config module whose value is not the default (patches included).

    To torch an entry that was patched once and restored is set for good, if to its default. Nothing
    depends on that, and two compiles of one process are not to differ in it.
    """
    entries: dict[str, object] = module._get_dict(skip_default=True)
    return {
        key: value
        for key, value in entries.items()
        if type(value) is not type(module._config[key].default)
        or value != module._config[key].default
    }


@cache
def config_keys(module: ModuleType) -> frozenset[str]:
    """Return the names of a config module's entries."""
    return frozenset(module._config)


@contextlib.contextmanager
def local_caches_on() -> Iterator[None]:
    """Let compiled code be left in the caches of this machine, and be read from them.

    That is torch's default, which the environment of this process may overrule; what the program
    itself sets holds. Compiled headers are not kept: a new folder would begin with making them.
    """
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor
    from torch.utils._config_module import _UNSET_SENTINEL

    with contextlib.ExitStack() as stack:
        for module, name in ((inductor, "fx_graph_cache"), (functorch, "enable_autograd_cache")):
            entry = module._config[name]
            stack.enter_context(patched(entry, "env_value_force", _UNSET_SENTINEL))
            # A patch that has ended may have left the forced value as one that was set.
            stack.enter_context(module.patch({name: True}))
        stack.enter_context(inductor.patch({"cpp_cache_precompile_headers": False}))
        yield


@contextlib.contextmanager
def caches_off() -> Iterator[None]:
    """Let no compiled artifact be read from or left in any cache: a hit would skip stages.

    Not by `force_disable_caches`: that makes Inductor probe the vector instructions of the machine,
    with a run of the C++ compiler, for every graph.
    """
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor

    with (
        inductor.patch(
            {
                "fx_graph_cache": False,
                "fx_graph_remote_cache": False,
                "compile_threads": 1,
            }
        ),
        functorch.patch(
            {
                "enable_autograd_cache": False,
                "enable_remote_autograd_cache": False,
                "bundled_autograd_cache": False,
            }
        ),
    ):
        yield
