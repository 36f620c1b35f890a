"""Tensors and symbolic scalars: as descriptions, as fake values, as real ones."""
