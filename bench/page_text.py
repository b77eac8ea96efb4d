"""The figures as a page of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LEARNED = Path(__file__).with_name("learned.md")


def page(results: dict[str, dict[str, Any]]) -> str:
    """docs/benchmarks.md of stored results (see ``__main__``)."""
    newest = max(results.values(), key=lambda each: str(each["date"]))
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench` (`python -m bench`, `python -m bench NAME…` for some). Every bench runs in a process of its own; "
        "the scripted model server is another. Figures are medians of several runs; what is compared was measured in the same "
        "run, in turns. The load is the machine's one-minute average before and after a bench: on a machine with other work "
        "times are longer than they would be, ratios hold.",
        "",
        *(f"- {line}" for line in newest["machine"]),
        f"- {', '.join(newest['versions'])}",
        "",
        *_summary(results),
        LEARNED.read_text(encoding="utf-8").strip(),
        "",
    ]
    for name, result in results.items():
        lines += [
            f"## {name}",
            "",
            result["claim"],
            "",
            *table(result["found"]),
            *(f"{text}\n" for text in result["found"] if isinstance(text, str)),
            f"*{result['date']}, {result['seconds']:.0f} s, load {result['load'][0]:.1f} to {result['load'][1]:.1f}*",
            "",
        ]
    return "\n".join(lines)


def _summary(results: dict[str, dict[str, Any]]) -> list[str]:
    """Every figure that has a bound."""
    lines = ["## Targets", "", "| bench | what | measured | target | |", "|---|---|---:|---:|---|"]
    for name, result in results.items():
        for each in result["found"]:
            if isinstance(each, dict) and bound(each):
                word = "met" if met(each) else "**not met**"
                lines.append(f"| {name} | {each['what']} | {shown(each)} | {bound(each)} | {word} |")
    return [*lines, ""]


def table(found: list[Any]) -> list[str]:
    """Markdown of figures: one column a program where there are several."""
    figures = [each for each in found if isinstance(each, dict)]
    if not figures:
        return []
    whos = list(dict.fromkeys(each["who"] for each in figures))
    if len(whos) == 1:
        lines = ["| | | target |", "|---|---:|---:|"]
        lines += [f"| {each['what']} | {shown(each)} | {bound(each)} |" for each in figures]
        return [*lines, ""]
    lines = [f"| | {' | '.join(whos)} | target |", f"|---|{'---:|' * len(whos)}---:|"]
    for what in dict.fromkeys(each["what"] for each in figures):
        row = {each["who"]: each for each in figures if each["what"] == what}
        cells = [shown(row[who]) if who in row else "" for who in whos]
        limit = next((bound(each) for each in row.values() if bound(each)), "")
        lines.append(f"| {what} | {' | '.join(cells)} | {limit} |")
    return [*lines, ""]


def shown(figure: dict[str, Any]) -> str:
    value = figure["value"]
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {figure['unit']}"


def bound(figure: dict[str, Any]) -> str:
    if figure.get("most") is not None:
        return f"≤ {figure['most']:g} {figure['unit']}"
    if figure.get("least") is not None:
        return f"≥ {figure['least']:,.0f} {figure['unit']}"
    return ""


def met(figure: dict[str, Any]) -> bool:
    most, least = figure.get("most"), figure.get("least")
    return (most is None or figure["value"] <= most) and (least is None or figure["value"] >= least)
