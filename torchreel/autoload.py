"""The entry point that `import torch` calls (group `torch.backends`).

Lives here: the decision whether to attach, from the environment alone.  Not here: attaching
itself (`torchreel.recorder`).  Called by torch at the end of `import torch`, where an exception
would make `import torch` fail: so nothing may leave this module, and nothing is imported unless
`TORCHREEL` is set.
"""

from __future__ import annotations

import os


def autoload() -> None:
    """Attach the recorder when the environment asks for it (`TORCHREEL=<mode>:<path>`)."""
    setting = os.environ.get("TORCHREEL")
    if not setting:
        return
    from torchreel.recorder.failing_open import fail_open, say_at_the_end

    say_at_the_end()
    with fail_open("autoload"):
        from torchreel.recorder.session import install_from_environment

        install_from_environment(setting)
