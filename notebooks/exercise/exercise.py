def median(numbers):
    """The middle one of the numbers; of an even count, the mean of the two in the middle.

    None when there are none.
    """
    numbers.sort()
    return numbers[len(numbers) // 2]
