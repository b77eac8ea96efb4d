"""``python -m nbagent``."""

from __future__ import annotations

import sys

from nbagent.cli import main

sys.exit(main())
