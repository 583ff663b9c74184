"""`python -m ftracefs` is `ftracefs`."""

import sys

from ftracefs.cli import main

sys.exit(main())
