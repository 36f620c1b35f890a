"""Processes that wrote a recording: finds out if they live, and which compiles had returned."""
