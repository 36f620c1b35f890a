"""Text from a store, written where it must stay text: one function per context.

Lives here: which characters a reader can see (`characters`), and the contexts: Markdown
(`markdown`), Python (`python`) and the shell (`shell`). Knows nothing of stores and of torch.
Called by everything that prints or writes a file.
"""
