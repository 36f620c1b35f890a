"""Compares the results of a compiled graph with eager's."""
