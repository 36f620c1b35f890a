"""A program of several files becomes one that means the same."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from torchreel.minifier.source.own_modules import with_own_modules

_MODULES = {
    "passes": '''
        """Rewrites."""
        from __future__ import annotations
        import torch
        from helpers import twice
        LEVEL = 2
        class Rewriter:
            def run(self, x):
                return twice(x) * LEVEL
        def make():
            return Rewriter()
        if __name__ == "__main__":
            print(make())
        ''',
    "helpers": "def twice(x): return x + x\n",
    "deep.inner": "def deep(x): return [x]\n",
    "deep.outer": "from ..helpers import twice\ndef two(x): return twice(x)\n",
    "deep.model": "from .inner import deep\ndef one(x):\n    return deep(x)\n",
    "deep.late": "def one(x):\n    from .inner import deep\n    return deep(x)\n",
    "ops": "def sum(x, dim): return x\ndef norm(x): return sum(x, 0)\n",
    "broken": "ten = 1\nnonlocal ten\n",
    "total": "def total(input): return sum(input)\n",
}


def read(name: str) -> ast.Module | None:
    return ast.parse(dedent(_MODULES[name])) if name in _MODULES else None


def one_file(text: str) -> str:
    return ast.unparse(with_own_modules(ast.parse(dedent(text)), read))


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("from passes import Rewriter\nfound = Rewriter().run(3)", 12),
        ("from passes import Rewriter as R, make as m\nfound = [R().run(1), m().run(1)]", [4, 4]),
        ("import passes\nfound = passes.make().run(3)", 12),
        ("import passes as p\nfrom helpers import twice\nfound = twice(p.LEVEL)", 4),
        ("from deep.inner import deep\nfrom passes import make\nfound = deep(make().run(1))", [4]),
        ("from passes import make\nfrom helpers import twice as t\nfound = t(make().run(1))", 8),
        ("from deep.model import one\nfound = one(3)", [3]),
        ("from ops import norm, sum\nfound = sum(norm(3), 0)", 3),
        ("from total import total\ninput = [1, 2]\nfound = total(input)", 3),
    ],
)  # fmt: skip
def test_modules_come_before_what_uses_them(program: str, value: object) -> None:
    text = one_file(program)
    assert not any(f"{name} import" in text or f"import {name}" in text for name in _MODULES)
    assert text.count("class Rewriter") <= 1
    scope: dict[str, object] = {"__name__": "one_file"}
    exec(compile(text, "one_file", "exec"), scope)
    assert scope["found"] == value


def test_what_must_come_first_does() -> None:
    text = one_file("import os\nfrom passes import make")
    assert text.startswith("from __future__ import annotations\nimport os")
    assert "__main__" not in text


@pytest.mark.parametrize(
    "program",
    [
        "from passes import Rewriter\nLEVEL = 3",  # a name of the module's means something else
        "from passes import *",
        "from passes import missing",
        "from . import passes",
        "import passes\nprint(passes)",
        "import passes\nmake = passes.make()",  # a name of the program's would mean something else
        "import torch\nfrom torch import nn",
        "def f():\n    from passes import make\n    return make()",
        "from deep.outer import two",  # one import leads out of all packages
        "from broken import ten\nsum = 2",  # it can be parsed, but not be run
        "from ops import norm\nsum([norm(1), 2])",  # a builtin would be the module's
        "from total import total\nsum = 3",  # and the module's builtin the program's
    ],
)
def test_an_import_stays_where_its_names_would_mean_something_else(program: str) -> None:
    assert one_file(program) == ast.unparse(ast.parse(program))


def test_an_import_of_the_own_package_stays_without_dots() -> None:
    assert "    from deep.inner import deep" in one_file("from deep.late import one")


def test_a_module_that_reads_a_builtin_comes_before_no_other_with_that_name() -> None:
    text = one_file("from total import total\nfrom ops import norm")
    assert "from ops import norm" in text
    assert "def total" in text
    text = one_file("from ops import norm\nfrom total import total")
    assert "from total import total" in text
    assert "def norm" in text
