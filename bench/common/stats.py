"""Figures of samples: quantiles, and a bootstrap interval for paired ratios. Nothing to install."""

import random
import statistics


def quantile(values, share):
    """The smallest value that at least this share of them does not exceed.

    `baton bench` takes the same one.
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def median(values):
    """Median of those that are not None; None of none."""
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def least(values):
    """Smallest of those that are not None; None of none."""
    return min((value for value in values if value is not None), default=None)


def figures(ms, shares=(0.5, 0.99)):
    """Count, some quantiles (0.999 is `p999_ms`) and longest of times in milliseconds."""
    named = {f"p{f'{share:g}'[2:]:0<2}_ms": share for share in shares}
    found = {name: quantile(ms, share) for name, share in named.items()}
    return {"n": len(ms), **found, "max_ms": max(ms)}


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
