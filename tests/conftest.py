"""What holds for every test: property tests try the same examples in every run.

`HYPOTHESIS_PROFILE=explore make test` tries new ones.
"""

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
