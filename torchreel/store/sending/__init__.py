"""Sends recordings from one store into another: what is new, once, whole or not at all.

`push` is the way in; `rows` reads and checks a recording before anything of it is sent, `contents`
its blobs, `origins` says what is there already, `target` writes.
"""
