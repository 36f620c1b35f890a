"""Plants the fault of `planted_faults` in any process, once Inductor has been imported there."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

_AFTER = ("torch._inductor.compile_fx", "torch._inductor.graph")
_executed: set[str] = set()  # a module is in sys.modules long before it is complete


class _Planter(importlib.abc.MetaPathFinder):
    """Lets the usual finders find a module, and plants the fault when it has been executed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _executed.add(name)
            if _executed.issuperset(_AFTER):
                import planted_faults

                planted_faults.plant()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Planter())
