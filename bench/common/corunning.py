"""What is made of the co-running measurement's cells: figures and tables. Pure."""

import statistics

HEADER = ["served", "trained", "way", "requests", "P50 ms", "P99 ms"]
HEADER += ["P50 ratio", "P99 ratio", "+ P50 ms", "training"]


def quantile(values, share):
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def times(ms):
    """Figures of the requests' times."""
    if not ms:
        return {"n": 0}
    return {
        "n": len(ms),
        "p50_ms": quantile(ms, 0.5),
        "p95_ms": quantile(ms, 0.95),
        "p99_ms": quantile(ms, 0.99),
        "mean_ms": statistics.fmean(ms),
        "max_ms": max(ms),
    }


def told(cell):
    """A line about a cell."""
    figures = []
    if cell.get("n"):
        figures.append(f"P50 {cell['p50_ms']:.2f} P99 {cell['p99_ms']:.2f} ms ({cell['n']})")
    if cell["steps_per_second"] is not None:
        figures.append(f"{cell['steps_per_second']:.2f} steps/s")
    return f"{cell['way']}, {cell['served']}, {cell['trained']}: {', '.join(figures)}"


def alone(result, load=None, **wanted):
    """What a model or a training did alone: all such cells of the run."""
    wanted = {"way": "alone", **wanted}
    return [
        cell
        for cell in result["cells"]
        if all(cell[name] == value for name, value in wanted.items()) and cell.get("load") == load
    ]


def middle(cells, field):
    """The mean of a figure over cells; none without any."""
    found = [cell[field] for cell in cells if cell.get(field) is not None]
    return statistics.fmean(found) if found else None


def ratios(result, cell):
    """A cell's figures against both alone in the same run: {name: ratio or none}."""
    served = alone(result, cell.get("load"), served=cell["served"], trained=None)
    trained = alone(result, None, served=None, trained=cell["trained"])
    found = {}
    for field in ("p50_ms", "p95_ms", "p99_ms"):
        base = middle(served, field)
        found[field] = cell[field] / base if base and cell.get(field) else None
    base = middle(served, "p50_ms")
    found["added_ms"] = cell["p50_ms"] - base if base and cell.get("p50_ms") else None
    rate, own = middle(trained, "steps_per_second"), cell["steps_per_second"]
    found["training"] = own / rate if rate and own else None
    return found


def noise(result, model):
    """How far the P99 of a model alone lie apart in one run, as a ratio; none of fewer than two."""
    cells = alone(result, None, served=model, trained=None)
    found = [cell["p99_ms"] for cell in cells if cell.get("n")]
    return max(found) / min(found) if len(found) > 1 else None


def figure(value, digits=2):
    """A number for a table."""
    return "-" if value is None else f"{value:.{digits}f}"


def rows(result):
    """The table's rows."""
    found = []
    for cell in result["cells"]:
        more = ratios(result, cell)
        load = f" at {cell['load']:g}" if cell.get("load") else ""
        found.append(
            [
                (cell["served"] or "-") + load,
                cell["trained"] or "-",
                cell["way"],
                cell.get("n", "-"),
                figure(cell.get("p50_ms")),
                figure(cell.get("p99_ms")),
                figure(more["p50_ms"]),
                figure(more["p99_ms"]),
                figure(more["added_ms"]),
                figure(more["training"]),
            ]
        )
    return found
