"""Values of a store, held to the types that they should have.

Called by the readers of rows and documents whose types are declared.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

_T = TypeVar("_T")


@overload
def convert(value: object, kind: type[_T]) -> _T: ...
@overload
def convert(value: object, kind: Any) -> Any: ...
def convert(value: object, kind: Any) -> Any:
    """Return `value` as `kind`, bytes as they are.  Raises ValueError for another type.

    msgspec quotes what it found in its message; it can't, where that is half a surrogate pair, as
    which an invalid byte of a text is read.
    """
    try:
        return msgspec.convert(value, kind, builtin_types=(bytes,))
    except UnicodeEncodeError as error:
        raise ValueError("a text is not valid UTF-8") from error
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
