"""A program with an entry of its own: prints what it returns."""

from openmrc.core.jit import entry, kernel


@kernel
def squared(number: int) -> int:
    return number * number


@entry
def sum_of_squares(count: int) -> int:
    total = 0
    for number in range(count):
        total += squared(number)
    return total


if __name__ == "__main__":
    print(sum_of_squares(10))  # noqa: T201
