"""Frame bundles: what stands beside and inside of the pickle of a frame."""
