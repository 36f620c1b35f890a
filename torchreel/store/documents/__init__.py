"""JSON documents of a store: canonical form, graphs, and their spelling as Python text."""
