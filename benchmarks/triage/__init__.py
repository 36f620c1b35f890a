"""Whether `torchreel triage` groups the failures of real bugs as the bugs do."""
