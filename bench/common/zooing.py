"""The verdict on the runs of a program of the zoo: equal, close, different, broken. Pure.

A run is an object {status, wall_seconds, why} and, where the program ended well, what zoo_worker.py
printed of it.
"""

# Verdicts that speak for Baton, those that say nothing about it, and the others.
GOOD = ("equal", "close")
SILENT = ("not installed", "broken bare", "not evicted")
BAD = ("DIFFERS", "crash", "timeout")
# Programs that differ from themselves may differ from that by so much more.
MORE, LEAST = 10, 1e-3


def first_difference(one, other):
    """The first step whose outputs differ; None if none does."""
    pairs = zip(one["step_digests"], other["step_digests"])
    return next((n for n, (a, b) in enumerate(pairs) if a != b), None)


def distance(one, other):
    """The largest relative distance between the figures of two runs' steps."""
    pairs = zip(one["figures"], other["figures"])
    return max((abs(a - b) / max(abs(a), 1e-12) for a, b in pairs), default=0.0)


def repeats(bare):
    """True if two bare runs agree bit for bit."""
    return bare[0]["digest"] == bare[1]["digest"]


def trouble(bare):
    """A verdict if the program does not even run bare: (verdict, why); else None."""
    for run in bare:
        if run["status"] == "absent":
            return "not installed", run["why"]
        if run["status"] != "ok":
            return "broken bare", run["why"]
    return None


def verdict(bare, baton, evictions, tolerance=None):
    """(verdict, why) of two bare runs and one that was evicted so many times."""
    if found := trouble(bare):
        return found
    if baton["status"] != "ok":
        return "timeout" if baton["status"] == "timeout" else "crash", baton["why"]
    equal = baton["digest"] == bare[0]["digest"]
    if not equal and repeats(bare) and tolerance is None:
        return "DIFFERS", f"first at step {first_difference(bare[0], baton)} of {baton['steps']}"
    if not equal:
        far, allowed = distance(bare[0], baton), MORE * distance(*bare)
        allowed = max(allowed, LEAST, tolerance or 0)
        if far > allowed:
            return "DIFFERS", f"by {far:.2g}, more than {allowed:.2g}"
    if not evictions:
        return "not evicted", "nothing was evicted while it ran"
    return ("equal" if equal else "close"), ""


def summary(rows):
    """How many rows there are of each verdict, in a fixed order."""
    counts = {word: sum(row["verdict"] == word for row in rows) for word in (*GOOD, *BAD, *SILENT)}
    return {word: count for word, count in counts.items() if count}
