"""ShapeEnvs as data: snapshots, the changes between two, and the answers they remember."""
