"""Damaged stores: recordings, ways to damage them, and what every command makes of one."""
