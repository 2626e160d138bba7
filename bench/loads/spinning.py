"""Numbers that a kernel steps through, so that its result says how many steps it made. Pure."""

# A linear congruential generator (Numerical Recipes'); all arithmetic is modulo 2^32.
FACTOR, TERM = 1664525, 1013904223
MASK = 0xFFFFFFFF


def leap(steps):
    """(factor, term) of so many steps at once, by squaring."""
    factor, term = 1, 0
    one_factor, one_term = FACTOR, TERM
    while steps:
        if steps & 1:
            factor, term = factor * one_factor & MASK, (term * one_factor + one_term) & MASK
        one_factor, one_term = one_factor**2 & MASK, one_term * (one_factor + 1) & MASK
        steps >>= 1
    return factor, term


def is_right(state, rounds, steps):
    """True if each number, which began as its index, has the right value.

    `rounds` says of each block how many rounds of `steps` steps its share of the numbers has made.
    """
    share = len(state) // len(rounds)
    for block, made in enumerate(rounds):
        factor, term = leap(made * steps)
        first = block * share
        wanted = [(factor * i + term) & MASK for i in range(first, first + share)]
        if state[first : first + share] != wanted:
            return False
    return True
