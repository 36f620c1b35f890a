"""What of `__torch_function__` is switched off comes out of a store, and may be anything there."""

import pytest
import torch

from torchreel.errors import UnsupportedError
from torchreel.formats.checkpoints import ambient


@pytest.mark.parametrize("what", ["", "subclasses", "all"])
def test_what_was_switched_off_is_again(what: str) -> None:
    with ambient.with_functions_off(what):
        assert ambient.functions_off() == what
    assert torch._C._is_torch_function_enabled()


@pytest.mark.parametrize("what", ["modes", 7, None, ["all"], {}])
def test_what_torch_has_not_is_refused(what: object) -> None:
    with pytest.raises(UnsupportedError, match="nothing is called"):
        ambient.with_functions_off(what)
