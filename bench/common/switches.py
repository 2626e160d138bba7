"""Sums over the records of switches and evictions that `baton status --json` lists. Pure."""

FIELDS = ("bytes_out", "bytes_in", "out_seconds", "in_seconds", "drain_ms", "unmap_ms", "map_ms")


def later(before, after):
    """The part of `after` beyond `before`: lists of which the oldest may have been dropped."""
    for start in range(len(before) + 1):
        kept = before[start:]
        if after[: len(kept)] == kept:
            return after[len(kept) :]
    return after


def fresh(before, after):
    """Records of the second status that the first has not: switches, and allocations that evicted.

    The latter are missing where a coordinator lists switches only.
    """
    last = max((record["n"] for record in before["recent"]), default=0)
    records = [record for record in after["recent"] if record["n"] > last]
    return records + later(before.get("allocations", []), after.get("allocations", []))


def accounted(before, after, records):
    """True if the records hold every byte that was copied between the two statuses."""
    return all(
        sum(record[way] for record in records) == after[way] - before[way]
        for way in ("bytes_out", "bytes_in")
    )


def rate(count, seconds):
    """GB/s; None where nothing was copied."""
    return count / seconds / 1e9 if count and seconds else None


def total(records):
    """One record of several, with rates; `switch_ms` is the sum too."""
    one = {field: sum(record[field] for record in records) for field in (*FIELDS, "switch_ms")}
    one["records"] = len(records)
    one["out_gbps"] = rate(one["bytes_out"], one["out_seconds"])
    one["in_gbps"] = rate(one["bytes_in"], one["in_seconds"])
    return one


def moving(records, share, size):
    """How many of the records moved at least that share of `size` bytes, both ways together."""
    return sum(r["bytes_in"] + r["bytes_out"] >= share * size for r in records)
