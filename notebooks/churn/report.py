"""Print how good the churn scores are: `python report.py [THRESHOLD]`."""

import sys
from pathlib import Path

import pandas as pd

from metrics import confusion, precision, recall

DATA = Path(__file__).parent / "data"


def load() -> pd.DataFrame:
    """One row a customer: segment, whether they left, and the model's score."""
    customers = pd.read_csv(DATA / "customers.csv")
    scores = pd.read_csv(DATA / "scores.csv")
    return customers.merge(scores, on="customer", validate="one_to_one")


def table(data: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """Precision and recall at ``threshold``, for everyone and for each segment."""
    groups = {"all": data, **dict(list(data.groupby("segment")))}
    rows = {}
    for name, group in groups.items():
        counts = confusion(group["churned"] == 1, group["score"] >= threshold)
        rows[name] = {"customers": len(group), "precision": precision(counts), "recall": recall(counts)}
    return pd.DataFrame(rows).T.astype({"customers": int}).round(2)


if __name__ == "__main__":
    threshold = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
    print(table(load(), threshold).to_string())
