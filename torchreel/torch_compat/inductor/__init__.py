"""Private names of Inductor.

Lives here: its calls, and the modes that decide what is in generated code (`code_generation`);
what a program adds to its tables (`added_entries`).
"""
