"""torch's structured trace format: what `TORCH_TRACE` writes and tlparse reads."""
