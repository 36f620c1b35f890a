"""The children of replays: started, forked from a warm process, and cleaned up."""
