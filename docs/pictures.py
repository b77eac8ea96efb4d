"""Takes the pictures of the README and the documentation: ``python -m docs.pictures``.

They are what the browser tests see: a real JupyterLab, light and dark, a plan that waits for approval and the same cell when
it was built.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TAKEN = ROOT / "test-output"
PICTURES = {
    "shop-review-light.png": "plan-light.png",
    "shop-review-dark.png": "plan-dark.png",
    "shop-done-light.png": "build-light.png",
    "shop-done-dark.png": "build-dark.png",
}
TEST = "tests/browser/test_plan_and_build.py::test_plan_approve_build"


def main() -> int:
    for name in PICTURES:
        (TAKEN / name).unlink(missing_ok=True)
    status = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST], cwd=ROOT, check=False
    ).returncode
    missing = [name for name in PICTURES if not (TAKEN / name).is_file()]
    if status or missing:
        print(
            f"No new pictures: the browser test did not take {', '.join(missing) or 'them as it should'}.",
            file=sys.stderr,
        )
        return 1
    for name, stored in PICTURES.items():
        shutil.copyfile(TAKEN / name, ROOT / "docs" / "images" / stored)
    return 0


if __name__ == "__main__":
    sys.exit(main())
