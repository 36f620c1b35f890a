"""A frame of the program in the child: its bundle read back, its modules, and Dynamo's call."""
