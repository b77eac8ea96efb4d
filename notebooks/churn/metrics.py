"""How good are the churn scores? Counts and rates at one threshold."""

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Confusion:
    """Customers by what the model said and what they did."""

    true_positive: int
    false_positive: int
    false_negative: int
    true_negative: int


def confusion(churned: pd.Series, flagged: pd.Series) -> Confusion:
    """Count the four cases. Both series are boolean, one value a customer."""
    return Confusion(
        true_positive=int((churned & flagged).sum()),
        false_positive=int((churned & ~flagged).sum()),
        false_negative=int((~churned & flagged).sum()),
        true_negative=int((~churned & ~flagged).sum()),
    )


def precision(counts: Confusion) -> float:
    """Of the customers that were flagged, the share that left."""
    return counts.true_positive / (counts.true_positive + counts.false_positive)


def recall(counts: Confusion) -> float:
    """Of the customers that left, the share that was flagged."""
    return counts.true_positive / (counts.true_positive + counts.false_negative)
