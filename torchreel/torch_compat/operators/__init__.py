"""Operators that torch has registered, and those that a program defines."""
