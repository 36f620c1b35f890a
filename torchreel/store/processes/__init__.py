"""Processes that wrote a recording: whether they live, what had returned, and how they ended."""
