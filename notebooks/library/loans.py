"""Which books are out too long? Reads `data/loans.csv`; run it with `python loans.py`."""

import csv
from datetime import date
from pathlib import Path

LIMIT = 28
TODAY = date(2026, 3, 31)


def overdue(rows, today=TODAY, limit=LIMIT):
    """(title, days over the limit) of every loan that is out too long, worst first."""
    found = []
    for row in rows:
        days = (today - date.fromisoformat(row["since"])).days
        if days > limit:
            found.append((row["title"], days - limit))
    return sorted(found, key=lambda pair: pair[1])


def load(path=Path(__file__).parent / "data" / "loans.csv"):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    for title, days in overdue(load()):
        print(f"{days:3} days  {title}")
