"""The examination: programs that were not written for this project, recorded and replayed."""
