"""The lines of a script that compare which results are one object, or share memory.

Lives here: that comparison. Not here: what else is compared (`script`), how a reduction compares it
(`replay.accuracy.comparison`).
"""

from __future__ import annotations

KIND = "aliasing"
"""The kind of difference that these lines show."""

_SHARING = """\
def sharing(result, args):
    results = [*result] if isinstance(result, (list, tuple)) else [result]
    tensors = [t for t in [*results, *args] if isinstance(t, torch.Tensor)]
    found = [[one is other for one in tensors] for other in tensors]
    plain = [t.detach() for t in tensors]
    for one in plain:
        for other in plain:
            other.zero_()
        one.fill_(1)
        found.append([bool(other.any()) for other in plain])
    return found
"""
"""Says of every two tensors whether they are one, and whether writing to one changes the other."""


def ending(eager: str) -> list[str]:
    """Return the lines that compare the function `eager` with `compiled`."""
    return [
        *_SHARING.splitlines(),
        "",
        "",
        "args = inputs()",
        f"expected = sharing({eager}(*args), args)",
        "args = inputs()",
        "actual = sharing(compiled(*args), args)",
        "torch.testing.assert_close(actual, expected)",
    ]
