"""What the exercise must do. Run it as often as you like: `python check.py`."""

from exercise import median

CASES = {
    "three numbers": lambda: median([3, 1, 2]) == 2,
    "four numbers": lambda: median([4, 1, 3, 2]) == 2.5,
    "no number": lambda: median([]) is None,
    "the list is as it was": lambda: (numbers := [3, 1, 2], median(numbers), numbers == [3, 1, 2])[-1],
}


def check():
    passed = 0
    for name, case in CASES.items():
        try:
            right = case()
        except Exception as error:
            right = False
            name = f"{name} ({type(error).__name__})"
        passed += right
        print("✓" if right else "✗", name)
    print(f"{passed} of {len(CASES)}")
    return passed == len(CASES)


if __name__ == "__main__":
    raise SystemExit(not check())
