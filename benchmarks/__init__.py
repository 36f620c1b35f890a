"""Long runs that print tables: real models, real failures.  Never run as tests."""
