"""The releases of torch, and the names that each of them has."""
