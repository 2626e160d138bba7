"""The report's pictures, made of the result files: {file name: (title, SVG)} for each kind."""

import chart
from common import corunning, switching

# A logarithmic axis where the largest value is so many times the smallest.
WIDE = 20


def switch(result):
    """The times of every model as bars: resident, evicted, and by today's means."""
    rows, groups = result["rows"], {}
    for model in switching.models_of(rows):
        ready = switching.of(rows, model, switching.READY, "baton")
        baton, other, new = (
            switching.of(rows, model, name) for name in ("baton", *switching.BASELINES)
        )
        if baton and baton["p50_ms"]:
            groups[model] = {
                "ready": ready and ready["p50_ms"],
                "evicted, under Baton": baton["p50_ms"],
                "checkpoint API": other and other["n"] and other["suspend_ms"] + other["p50_ms"],
                "new process": new and new["p50_ms"],
            }
    title = "A request to a model whose GPU memory another program has taken"
    return {"switch.svg": (title, chart.bars(title, groups))} if groups else {}


def corun(result):
    """All pairs, one pair's times, and what the load does; of what was measured."""
    runs = result["runs"]
    made = {
        "corun.svg": corun_pairs(corunning.matrix(runs)),
        "corun_times.svg": corun_times(corunning.spread(runs)),
        "corun_load.svg": corun_load(corunning.swept(runs)),
    }
    return {file: picture for file, picture in made.items() if picture}


def corun_pairs(panels):
    """A matrix for each way; None without any."""
    title = "P99 of requests beside a training, as a ratio to alone"
    note = "Across: the training. Below each ratio: the training's speed, as a share of alone."
    return (title, chart.matrix(title, panels, note)) if panels else None


def corun_times(spread):
    """How many requests took how long; None if no run has it."""
    if not spread:
        return None
    served, trained, ways = spread
    title = f"How long requests to {served} take beside a training of {trained}"
    least = min(times[0] for times in ways.values())
    wide = 0 < WIDE * least < max(times[-1] for times in ways.values())
    series = {way: list(zip(times, range(101))) for way, times in ways.items()}
    plot = chart.Plot("milliseconds", "% of requests", series, logarithmic=wide)
    return title, chart.lines(title, [plot])


def corun_load(swept):
    """P99 and the training's speed over the load; None if no run has it."""
    if not swept:
        return None
    title = "Requests beside a training, by how many they are"
    load, plots = "load: share of what could be answered alone", []
    for field, said, form in (
        (1, "P99, as a ratio to alone at that load", "{:g}"),
        (2, "the training's speed, as a share of alone", "{:.0%}"),
    ):
        series = {
            pair: [(point[0], point[field]) for point in points] for pair, points in swept.items()
        }
        plots.append(chart.Plot(load, said, series, form=form))
    return title, chart.lines(title, plots)
