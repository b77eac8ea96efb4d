"""Checked by hand: eight customers, of whom three left and two were flagged."""

import pandas as pd

from metrics import confusion, precision, recall

CHURNED = pd.Series([True, True, True, False, False, False, False, False])
FLAGGED = pd.Series([True, False, False, True, False, False, False, False])


def test_counts():
    counts = confusion(CHURNED, FLAGGED)
    assert (counts.true_positive, counts.false_positive) == (1, 1)
    assert (counts.false_negative, counts.true_negative) == (2, 4)


def test_precision_is_the_share_of_the_flagged():
    assert round(precision(confusion(CHURNED, FLAGGED)), 2) == 0.5


def test_recall_is_the_share_of_those_who_left():
    assert round(recall(confusion(CHURNED, FLAGGED)), 2) == 0.33


if __name__ == "__main__":
    failed = 0
    for name, test in sorted(globals().copy().items()):
        if name.startswith("test_"):
            try:
                test()
                print(f"ok      {name}")
            except AssertionError:
                failed += 1
                print(f"FAILED  {name}")
    raise SystemExit(failed)
