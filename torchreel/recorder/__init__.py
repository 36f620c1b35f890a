"""The recorder: attaches to torch's compiler and writes what it sees into a store.

Public: `record`, `install`, `uninstall`.  Imports neither torch nor SQLAlchemy; it may not import
the replayer, the minifier or the command line.
"""

from torchreel.recorder.recorder import Recorder
from torchreel.recorder.session import install, record, uninstall

__all__ = ["Recorder", "install", "record", "uninstall"]
