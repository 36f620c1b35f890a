"""Event logs that lack something: what is changed must be what the events before it made of it.

Called by those who make a state anew, event by event.
"""

from __future__ import annotations

from torchreel.errors import DamagedStore


def expect(name: object, what: str, found: object, recorded: object) -> None:
    """Raise DamagedStore unless the `what` of `name` is found as it was before a recorded
    change.
    """
    if found != recorded:
        raise DamagedStore(
            f"The event log has a hole: before it changed, the {what} of {name} was {recorded}, "
            f"and the events so far make it {found}. See what was lost with 'torchreel show'."
        )
