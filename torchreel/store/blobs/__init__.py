"""Blobs: everything large in a store, kept once, compressed, in packs and pages."""
