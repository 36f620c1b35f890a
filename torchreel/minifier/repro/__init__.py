"""The repro of a case: a script that needs torch alone, checked, and as the text of an issue.

The front of the package. Not here: the export itself (`export`), the check of a script (`check`),
the issue (`issue`), the files (`files`), other releases (`releases`).
"""

from __future__ import annotations

from torchreel.minifier.repro.check import CheckResult
from torchreel.minifier.repro.export import (
    Exported,
    ExportOptions,
    best_form,
    export,
    export_case,
    export_other_failure,
)
from torchreel.minifier.repro.files import FORMATS

__all__ = [
    "FORMATS",
    "CheckResult",
    "ExportOptions",
    "Exported",
    "best_form",
    "export",
    "export_case",
    "export_other_failure",
]
