"""Permission decisions a second with 10, 1,000 and 10,000 rules, asked before and never asked before."""

from __future__ import annotations

import time

from bench.figure import Figure, Found, median

CLAIM = (
    "One call of `evaluate` decides one permission on one resource. *Never asked before*: every call is about another path, a "
    "third of them matched by a rule among the many, a third alike but for their end, a third by a rule for everything alone. *Asked "
    "before*: a decision made once under a ruleset is remembered. Time of the processor, not of the clock."
)
CHEAP = True
SECONDS = 120


def rules(count: int) -> tuple[object, ...]:
    from nbagent.permission.ruleset import Rule

    made = [Rule("*", "*", "ask"), Rule("read", "*", "allow"), Rule("edit", "*", "allow")]
    for number in range(count - len(made)):
        kind = ("edit", "read", "bash")[number % 3]
        pattern = f"tool{number} *" if kind == "bash" else f"src/part{number}/**/*.py"
        made.append(Rule(kind, pattern, ("allow", "ask", "deny")[number % 3]))  # type: ignore[arg-type]
    return tuple(made)


def fresh_paths(turn: int, count: int, rules: int) -> list[str]:
    """Paths that were not asked about before."""
    starts = [f"{'lib' if n % 3 == 2 else 'src'}/part{n // 3 * 3 % rules}/{turn}/x{n}" for n in range(count)]
    return [f"{start}.{'txt' if n % 3 == 1 else 'py'}" for n, start in enumerate(starts)]


def measure(quick: bool) -> Found:
    from nbagent.permission.ruleset import evaluate

    found: Found = []
    first: dict[int, float] = {}
    for count in (10, 1_000, 10_000):
        ruleset = rules(count)
        again, fresh = [], []
        known = [f"src/part{n}/a/b{n}.py" for n in range(100)]
        for turn in range(2 if quick else 7):
            repeat = 5 if quick else 2_000
            for pattern in known:
                evaluate("edit", pattern, ruleset)  # type: ignore[arg-type]
            begin = time.process_time()
            for _ in range(repeat):
                for pattern in known:
                    evaluate("edit", pattern, ruleset)  # type: ignore[arg-type]
            again.append(repeat * len(known) / (time.process_time() - begin))
            new = fresh_paths(turn, 200 if quick else 30_000 if count == 10 else 3_000, count)
            begin = time.process_time()
            for pattern in new:
                evaluate("edit", pattern, ruleset)  # type: ignore[arg-type]
            fresh.append(len(new) / (time.process_time() - begin))
        first[count] = median(fresh)
        bound = 1_000_000 if count == 10 else None
        found.append(Figure(f"{count:,} rules: decisions never asked before", median(fresh), "a second", least=bound))
        found.append(Figure(f"{count:,} rules: decisions asked before", median(again), "a second", least=bound))
    slower = first[1_000] / first[10_000]
    found.append(Figure("10 times the rules, never asked before: slower by", slower, "times", most=10))
    return found
