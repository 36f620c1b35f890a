"""From the objects of a frame bundle to the text of a program that makes them again.

Lives here: functions by their recorded source (`functions`), everything else as expressions and
assignments (`objects`, `tensors`), names (`names`), the whole program (`program`). The pickle has
to be loaded for that, which runs its author's code: `child` does it, in a process of its own.
"""
