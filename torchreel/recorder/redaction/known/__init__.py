"""Secrets that are known by their form, their name or their value, and finding them in a text.

Lives here: by form (`tokens`), by the name before them (`names`; in the program's source,
`name_strength` and `syntax`), by value (`values`).  Not here: putting the rules together
(`redactor`), and taking out what is not known to be one (`strict`).
"""
