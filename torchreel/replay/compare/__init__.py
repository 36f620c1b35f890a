"""The comparison of a recorded compile with its replay.

To read it, start with `compiles`, which compares everything: event logs, graphs, code, failure.

- `events`: the walk along two event logs, to the first event where they differ
- `selection`, `rules`: which events are compared, and which differences are excused
- `lanes`, `normalise`, `normalise_dynamo`: an event as a line in canonical form
- `verdict`: the result; `causes`: what may have caused a difference
- `time_travel`: a replay that stops at an event

Imports no torch.
"""
