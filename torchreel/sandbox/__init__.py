"""Child processes that work on a stranger's store, and what the kernel keeps them from.

Lives here: the confinement of such a child, and reading what it left. Not here: what the child does
(`replay`, `minifier`), what a graph may call (`formats`). Imports no torch and nothing of
the other packages but `errors`: the check of a repro uses it in a process without torchreel.
"""

from torchreel.sandbox.confinement import Confinement, confine, is_confined, prepare
from torchreel.sandbox.denials import denial, denied
from torchreel.sandbox.missing import missing, warn_once
from torchreel.sandbox.programs import cpp_compiler, gpu_compilers, python
from torchreel.sandbox.remains import read_file

__all__ = [
    "Confinement",
    "confine",
    "cpp_compiler",
    "denial",
    "denied",
    "gpu_compilers",
    "is_confined",
    "missing",
    "prepare",
    "python",
    "read_file",
    "warn_once",
]
