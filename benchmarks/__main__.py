"""`make bench`: every benchmark in turn."""

import sys

from benchmarks import models

if __name__ == "__main__":
    sys.exit(models.main([]))
