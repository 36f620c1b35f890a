"""Runs a repro as a separate program, and writes down the exception that it raised, as data.

Run by `check` as `python -I runner.py REQUEST`, in an empty directory, maybe by the Python of
another environment. Until the repro has ended, nothing can be imported but the standard library,
torch and what torch depends on: torchreel itself least of all; a module that the user named, and
what it needs, may be imported too. What is the same error is judged by `check`. Before all that the
process confines itself, unless the store is trusted: what does it is unloaded again.
"""

import contextlib
import importlib
import importlib.util
import json
import runpy
import sys
from pathlib import Path
from typing import Any

_LONGEST = 1 << 20  # characters of a text: what is longer is a dump


class Filtered:
    """All finders of this process, which don't find hidden packages."""

    def __init__(self, finders: list[Any], hidden: frozenset[str]) -> None:
        self.finders, self.hidden = finders, hidden

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] in self.hidden:
            return None
        found = (finder.find_spec(fullname, path, target) for finder in self.finders)
        return next((spec for spec in found if spec is not None), None)


def confine(request: dict[str, Any]) -> None:
    """Confine this process, and unload what did it."""
    before = set(sys.modules)
    sys.path.insert(0, request["root"])
    from torchreel import sandbox

    programs = tuple(map(Path, request["programs"]))
    sandbox.confine(sandbox.Confinement(Path(request["folder"]), programs))
    sys.path.remove(request["root"])
    # A device that stands in has to know that this process is confined.
    unloaded = set() if "accelerator" in request else set(sys.modules) - before
    for name in unloaded:
        if name.partition(".")[0] in request["hidden"]:
            del sys.modules[name]


def stand_in(request: dict[str, Any]) -> Any:
    """Have a device stand in for the recorded GPU, as long as what is returned is held."""
    sys.path.insert(0, request["root"])
    from torchreel.replay.imposed.facts import Facts
    from torchreel.replay.imposed.torch_machine import imposed, without_other_programs

    held = contextlib.ExitStack()
    if "folder" in request:
        held.enter_context(without_other_programs())
    held.enter_context(imposed(Facts(accelerator=request["accelerator"])))
    sys.path.remove(request["root"])
    return held


def loaded(path: str) -> Any:
    """Load a file of torchreel that needs the standard library alone."""
    spec = importlib.util.spec_from_file_location(f"_{Path(path).stem}", path)
    assert spec is not None, "the path is that of a Python file"
    assert spec.loader is not None, "a Python file has a loader"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_compiler() -> None:
    """Make `torch.compile` return what it is given: the repro in eager mode."""
    import torch

    def compile(model: Any = None, **options: object) -> Any:
        return model if model is not None else lambda given: given

    torch.compile = compile


def described(error: Exception, raised: Any) -> dict[str, Any]:
    """Return an exception as data, for a signature and for the search for a denial."""
    chain, denials = raised.raised_chain(error), raised.denials(error)
    return {
        "chain": [one._replace(text=written(one.text)) for one in chain],
        "denials": [one._replace(text=written(one.text)) for one in denials],
    }


def written(text: str) -> str:
    """Return text that is no dump, and that UTF-8 can carry."""
    return text[:_LONGEST].encode("utf-8", "replace").decode("utf-8")


def needed(imports: list[str]) -> set[str]:
    """Import the user's own modules; returns the packages that they have imported."""
    before = set(sys.modules)
    for name in imports:
        importlib.import_module(name)
    return {name.partition(".")[0] for name in set(sys.modules) - before}


def main() -> None:
    """Run the script that the request names; its exceptions and its exit status are ours."""
    with open(sys.argv[1]) as file:
        request = json.load(file)
    loaded(request["processes"]).follow_parent()
    raised = loaded(request["raised"])
    sys.path.extend(request["path"])
    hidden = frozenset(request["hidden"]) - needed(request["imports"])
    if "folder" in request:
        confine(request)
    held = stand_in(request) if "accelerator" in request else None
    sys.meta_path = [Filtered(sys.meta_path, hidden)]
    sys.argv = [request["script"]]
    try:
        if request["eager"]:
            without_compiler()
        if request["as_test"]:
            tests = runpy.run_path(request["script"], run_name="test_repro")
            for test in [value for name, value in tests.items() if name.startswith("test_")]:
                test()
        else:
            runpy.run_path(request["script"], run_name="__main__")
    except Exception as error:
        with open(request["report"], "w") as file:
            json.dump(described(error, raised), file)
        raise
    del held


if __name__ == "__main__":
    main()
