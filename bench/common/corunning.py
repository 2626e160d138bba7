"""Makes figures and tables of the co-running measurement's cells. Pure."""

import statistics

from common import stats
from common.table import figure

# Ways to share the GPU. As tenants of a coordinator with these options:
SCENES = {"baton": [], "exclusive": ["--mode", "exclusive"], "no preemption": ["--no-preempt"]}
# Without Baton, by the driver's time slices:
BARE = "default"
# Without Baton, as clients of NVIDIA's MPS, with a priority for each class (0 goes before 1):
MPS = {"mps": {"latency": 0, "batch": 0}, "mps priority": {"latency": 0, "batch": 1}}
WAYS = [*SCENES, BARE, *MPS]
ALONE = "alone"
# How many requests there are, of those that could be answered alone, if nothing else is said.
LOAD = 0.5

HEADER = ["served", "trained", "way", "requests", "P50 ms", "P99 ms"]
HEADER += ["P50 ratio", "P99 ratio", "+ P50 ms", "training"]


def times(ms):
    """Figures of the requests' times."""
    if not ms:
        return {"n": 0}
    ordered = sorted(ms)
    return {
        **stats.figures(ms, (0.5, 0.95, 0.99)),
        "mean_ms": statistics.fmean(ms),
        "quantiles_ms": [
            round(stats.quantile(ordered, percent / 100), 3) for percent in range(101)
        ],
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
    """The work of a model or a training alone: all such cells of the run."""
    wanted = {"way": ALONE, **wanted}
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


def dated(results):
    """Runs in the order of their dates."""
    return sorted(results, key=lambda result: result["machine"]["date"])


def panel_of(result, cell):
    """The way, and what was unusual about it."""
    unusual = [", no graphs"] if result["eager"] else []
    unusual += [f", load {result['load']:g}"] if result["load"] != LOAD else []
    return "".join([cell["way"], *unusual])


def is_usual(result, cell):
    """True if the coordinator, if there was one, had no other options than the way's."""
    return cell["way"] not in SCENES or not result.get("serve")


def is_pair(cell):
    """True if it is a model beside a training, and no part of a sweep over loads."""
    return bool(cell["served"] and cell["trained"]) and cell.get("load") is None


def order_of(way):
    """A way's place among all."""
    ways = [ALONE, *WAYS]
    return ways.index(way) if way in ways else len(ways)


def matrix(results):
    """{way: {(served, trained): (ratio of P99, the training's share)}} of several runs.

    Every ratio is one within a run. Of several runs of a cell, the one with the most requests
    counts; of as many, the newest. None counts whose coordinator had other options.
    """
    best = {}
    for result in dated(results):
        for cell in filter(is_pair, result["cells"]):
            if not is_usual(result, cell):
                continue
            key = panel_of(result, cell), cell["served"], cell["trained"]
            if key not in best or cell.get("n", 0) >= best[key][1].get("n", 0):
                best[key] = result, cell

    def place(key):
        way = best[key][1]["way"]
        return order_of(way), key[0] != way

    found = {}
    for panel, *pair in sorted(best, key=place):
        one = ratios(*best[panel, *pair])
        found.setdefault(panel, {})[tuple(pair)] = one["p99_ms"], one["training"]
    return found


def spread_found(results):
    """(run, served, trained, {way: quantiles}) of the pair that `spread` shows, or None."""
    best = None
    for result in reversed(dated(results)):
        cells = [cell for cell in result["cells"] if cell.get("quantiles_ms")]
        cells = [cell for cell in cells if cell.get("load") is None]
        cells.sort(key=lambda cell: order_of(cell["way"]))
        for served, trained in dict.fromkeys(
            (cell["served"], cell["trained"]) for cell in filter(is_pair, cells)
        ):
            ways = {
                cell["way"]: cell["quantiles_ms"]
                for cell in cells
                if cell["served"] == served and cell["trained"] in (None, trained)
            }
            if best is None or len(ways) > len(best[3]):
                best = result, served, trained, ways
    return best


def spread(results):
    """(served, trained, {way: quantiles}) of one pair, all of one run, alone first; or None.

    It is the pair that was measured in the most ways, in the newest run that has so many.
    """
    found = spread_found(results)
    return found and found[1:]


def spread_of(results):
    """The run that `spread` shows a pair of, or None."""
    found = spread_found(results)
    return found and found[0]


def swept(results):
    """{pair: [(load, ratio of P99, the training's share)]} of the pairs measured at several loads.

    Of several runs of a pair, the newest counts.
    """
    found = {}
    for result in dated(results):
        pairs = {}
        for cell in result["cells"]:
            one = ratios(result, cell)
            point = cell.get("load"), one["p99_ms"], one["training"]
            if None not in point:
                pairs.setdefault(f"{cell['served']} beside {cell['trained']}", []).append(point)
        found |= pairs
    return found
