"""The entry `shapes`: ShapeEnvs rebuilt from the event log, and checked against their snapshots."""
