"""Makes figures, limits and rows of the measurement beside hostile guests. Pure."""

import statistics

from common import stats

# With no guest beside the owner's programs, and with a guest that behaves.
WITHOUT, FAIR = "without", "fair"
# Those have the GPU in turns with the training.
IN_TURNS = {FAIR, "floods", "stops", "held", "mute"}
# Those are for comparison.
NOT_JUDGED = {FAIR, "burns"}
HEADER = ["beside", "n", "P50 ms", "P99 ms", "P99.9 ms", "most ms", "P99 - without"]
HEADER += ["steps/s", "of without", "of fair", "result"]


def figures(ms):
    """Of requests' times."""
    return stats.figures(ms, (0.5, 0.99, 0.999))


def quartiles(values):
    """Median and quartiles; None of none."""
    return stats.summary(values) if values else None


def rows_of(cells):
    """A row for each guest, of all rounds, with what it changes against those beside it."""
    rows = []
    for name in dict.fromkeys(one["name"] for one in cells):
        mine = [at for at, one in enumerate(cells) if one["name"] == name]
        added, of_without, of_fair = [], [], []
        for at in mine:
            one = cells[at]
            # Those just before and after it, in the same round.
            alone = [cells[i] for i in (at - 1, at + 1) if 0 <= i < len(cells)]
            alone = [c for c in alone if c["name"] == WITHOUT and c["round"] == one["round"]]
            if name != WITHOUT and alone:
                added.append(one["p99_ms"] - statistics.fmean(c["p99_ms"] for c in alone))
                usual = statistics.fmean(c["steps_per_second"] for c in alone)
                of_without.append(one["steps_per_second"] / usual if usual else 0)
            fair = [c for c in cells if c["name"] == FAIR and c["round"] == one["round"]]
            if fair and fair[0]["steps_per_second"] and name in IN_TURNS - {FAIR}:
                of_fair.append(one["steps_per_second"] / fair[0]["steps_per_second"])
        did = {}
        for at in mine:
            for what, count in cells[at]["did"].items():
                did[what] = did.get(what, 0) + count
        rows.append(
            {
                "name": name,
                **figures([ms for at in mine for ms in cells[at]["ms"]]),
                "steps_per_second": statistics.median(cells[at]["steps_per_second"] for at in mine),
                "added_ms": quartiles(added),
                "of_without": quartiles(of_without),
                "of_fair": quartiles(of_fair),
                "did": did,
                "came": sum(cells[at]["came"] for at in mine),
            }
        )
    return rows


def share_of(row):
    """The training's speed against what it could be beside that guest."""
    return row["of_fair"] if row["name"] in IN_TURNS else row["of_without"]


def faults(row, limit_ms, limit_share):
    """The figures beyond the limits, in words."""
    if row["name"] in NOT_JUDGED or row["name"] == WITHOUT:
        return []
    found = []
    if row["added_ms"] and row["added_ms"]["median"] > limit_ms:
        found.append(f"P99 + {row['added_ms']['median']:.1f} ms")
    share = share_of(row)
    if share and share["median"] < limit_share:
        found.append(f"steps × {share['median']:.2f}")
    return found


def spread(found, digits=2):
    """A median and its quartiles."""
    if not found:
        return "-"
    low, high = found["first_quartile"], found["third_quartile"]
    return f"{found['median']:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def rows_shown(result):
    """The table's rows."""
    lines = []
    for row in result["rows"]:
        wrong = faults(row, result["limit_ms"], result["limit_share"])
        judged = "" if row["name"] in NOT_JUDGED or row["name"] == WITHOUT else "ok"
        times = (f"{row[name]:.2f}" for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms"))
        lines.append(
            [
                row["name"],
                row["n"],
                *times,
                spread(row["added_ms"], 1),
                f"{row['steps_per_second']:.1f}",
                spread(row["of_without"]),
                spread(row["of_fair"]),
                ", ".join(wrong) or judged,
            ]
        )
    return lines


def shortcomings(result):
    """All that is wrong, in words."""
    limits = result["limit_ms"], result["limit_share"]
    wrong = [f"{row['name']}: {fault}" for row in result["rows"] for fault in faults(row, *limits)]
    return [*result["failures"], *wrong]
