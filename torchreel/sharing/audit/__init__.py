"""Audit: everything that a file holds, against what may leave."""
