"""Programs for a real GPU, their recordings, and what a machine without one makes of them."""
