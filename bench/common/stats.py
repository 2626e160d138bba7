"""Median and a bootstrap interval: enough to judge paired ratios, with nothing to install."""

import random
import statistics


def bootstrap_median(values, level=0.95, draws=10_000, seed=1):
    """(low, high) of the median of `values`, by resampling with replacement.

    The seed is fixed, so that the same measurements give the same interval.
    """
    if not values:
        raise ValueError("no values to resample")
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(draws))
    tail = (1 - level) / 2
    low = medians[int(tail * (draws - 1))]
    high = medians[int(round((1 - tail) * (draws - 1)))]
    return low, high


def summary(values):
    """Median, 95 % interval, quartiles, extremes and count of `values`."""
    low, high = bootstrap_median(values)
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * values
    return {
        "median": statistics.median(values),
        "low": low,
        "high": high,
        "first_quartile": quartiles[0],
        "third_quartile": quartiles[2],
        "min": min(values),
        "max": max(values),
        "count": len(values),
    }
