"""Runs a repro as a program of its own, and writes down the signature of what it raised.

Run by `check` as `python -I runner.py REQUEST`, in an empty directory. Until the repro has ended,
nothing can be imported but the standard library, torch and what torch depends on, torchreel itself
least of all; a module that the user named, and what it needs, may be imported too. Only then is
`torchreel.store.signature` loaded, which is the one judge of what is the same error. Before all
that the process confines itself, unless the store is trusted: what does it is unloaded again.
"""

import importlib
import json
import runpy
import sys
from pathlib import Path


class Filtered:
    """All finders of this process, which don't find hidden packages."""

    def __init__(self, finders, hidden):  # type: ignore[no-untyped-def]
        self.finders, self.hidden = finders, frozenset(hidden)

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname.partition(".")[0] in self.hidden:
            return None
        found = (finder.find_spec(fullname, path, target) for finder in self.finders)
        return next((spec for spec in found if spec is not None), None)


def confined(request):  # type: ignore[no-untyped-def]
    """Confine this process; returns what tells a denial of the sandbox from other errors."""
    before = set(sys.modules)
    sys.path.insert(0, request["root"])
    from torchreel import sandbox

    programs = tuple(map(Path, request["programs"]))
    sandbox.confine(sandbox.Confinement(Path(request["folder"]), programs))
    sys.path.remove(request["root"])
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in request["hidden"]:
            del sys.modules[name]
    return sandbox.denied


def needed(imports):  # type: ignore[no-untyped-def]
    """Import the user's own modules; returns the packages that they have imported."""
    before = set(sys.modules)
    for name in imports:
        importlib.import_module(name)
    return {name.partition(".")[0] for name in set(sys.modules) - before}


def main() -> None:
    """Run the script that the request names; its exceptions and its exit status are ours."""
    with open(sys.argv[1]) as file:
        request = json.load(file)
    sys.path.extend(request["path"])
    hidden = frozenset(request["hidden"]) - needed(request["imports"])  # type: ignore[no-untyped-call]
    denied = confined(request) if "folder" in request else lambda errors: ""  # type: ignore[no-untyped-call]
    finders = sys.meta_path
    sys.meta_path = [Filtered(finders, hidden)]  # type: ignore[no-untyped-call]
    sys.argv = [request["script"]]
    try:
        if request["as_test"]:
            tests = runpy.run_path(request["script"], run_name="test_repro")
            for test in [value for name, value in tests.items() if name.startswith("test_")]:
                test()
        else:
            runpy.run_path(request["script"], run_name="__main__")
    except Exception as error:
        sys.meta_path = finders
        sys.path.insert(0, request["root"])
        from torchreel.recorder.failures import lineage
        from torchreel.store.signature import from_exception

        if why := denied(lineage(error)):
            with open(request["report"], "w") as file:
                json.dump({"denied": why}, file)
            raise
        found = from_exception(error, request["stage"], request["partition"])
        with open(request["report"], "w") as file:
            lines = str(error).strip().splitlines() or [""]
            told = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
            json.dump({"signature": found.to_json(), "message": told}, file)
        raise


if __name__ == "__main__":
    main()
