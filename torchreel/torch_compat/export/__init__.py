"""Exported programs, and the calls that make one."""
