"""Values of a store have the types that they should have, or one kind of error."""

import pytest

from torchreel.store.reading.typed import convert


@pytest.mark.parametrize("value", ["text", "invalid \udcff byte", None, [1]])
def test_another_type_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"Expected|UTF-8"):
        convert((value,), tuple[int])


def test_bytes_stay_bytes() -> None:
    assert convert((b"\xff", 1), tuple[bytes, int]) == (b"\xff", 1)
