"""Redaction: keeps secrets and home directories from reaching the disk.

Lives here: what the rest of the recorder uses.  `redactor` puts the rules together, `writer`
applies them to all that is written; what a level takes out is in a table in docs/redaction.md.  Not
here: which environment variables are recorded at all (`environment`), tensor values (never).
"""

from torchreel.recorder.redaction.known.names import SECRET_NAME
from torchreel.recorder.redaction.level import MODES, REDACTED, Rules, Withheld
from torchreel.recorder.redaction.redactor import Redactor
from torchreel.recorder.redaction.writer import RedactingWriter

__all__ = [
    "MODES", "REDACTED", "SECRET_NAME", "RedactingWriter", "Redactor", "Rules", "Withheld",
]  # fmt: skip
