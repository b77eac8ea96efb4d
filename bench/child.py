"""One bench in a process of its own: ``python -m bench.child NAME [--quick]`` prints its figures as one line of JSON."""

from __future__ import annotations

import importlib
import json
import sys

from bench.figure import Figure


def main() -> None:
    module = importlib.import_module(f"bench.{sys.argv[1]}")
    found = module.measure("--quick" in sys.argv)
    print("\n" + json.dumps([each.to_json() if isinstance(each, Figure) else each for each in found]))


if __name__ == "__main__":
    main()
