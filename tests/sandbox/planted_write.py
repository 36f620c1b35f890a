"""A backend that writes a file where PLANTED_FILE says, as a compiler does that keeps a cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch._dynamo import register_backend


@register_backend
def planted_write(graph: Any, inputs: Any) -> Any:
    Path(os.environ["PLANTED_FILE"]).write_text("x")
    return graph
