"""Which releases of torch there are, and which names each of them has."""
