"""Portable formats: graphs, expressions, sources, values, configs and checkpoints as plain data.

Lives here: what turns live objects of torch into JSON-able data and back.  Not here: where the data
is kept (`torchreel.store.blobs.blobs`), or when it is taken (`torchreel.recorder`).  Called by the
recorder (encode), the replay (decode) and the minifier (both).  Nothing in this package pickles,
evaluates or imports by a name found in the data.
"""
