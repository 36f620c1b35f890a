"""Failures as data: exceptions, messages and signatures."""
