"""Ends a replay before its end: at a stop, at a prompt, as a hang."""
