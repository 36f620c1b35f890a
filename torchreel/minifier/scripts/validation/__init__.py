"""The check of an exported file, on the finished text, before it is run or written.

Lives here: repros as programs (`scripts`), the text of an issue as Markdown (`issues`). Not here:
how the texts are made, nor whether a repro shows its failure (`repro.check`). Each function
raises `UnsupportedError`: a text that a hole in the escaping let through ends here.
"""
