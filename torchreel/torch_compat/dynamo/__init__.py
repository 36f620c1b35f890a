"""Private names of Dynamo.

Lives here: its tables (`rules`), its backends (`backends`, `debugging_backends`), what it keeps of
a code object (`code_objects`) and from earlier compiles (`automatic_dynamic`), the modes that it
asks for (`modes`), and the contexts of a compile (`contexts`).
"""
