"""The report's pictures, made of the result files: {file name: (title, SVG)} for each kind."""

import chart
from common import corunning, serving_llms, switching
from common.models import name_of

# A logarithmic axis where the largest value is so many times the smallest.
WIDE = 20

# The ways to share that are drawn, and what they are called there.
SAID = {
    "alone": "alone",
    "baton": "Baton",
    "default": "time slices",
    "mps": "MPS",
    "mps priority": "MPS with priorities",
}


def switch(result):
    """The times of every model as bars: resident, evicted, and by today's means."""
    rows, groups = result["rows"], {}
    for model in switching.models_of(rows):
        ready = switching.of(rows, model, switching.READY, "baton")
        baton, other, new = (
            switching.of(rows, model, name) for name in ("baton", *switching.BASELINES)
        )
        if baton and baton["p50_ms"]:
            groups[name_of(model)] = {
                "resident": ready and ready["p50_ms"],
                "evicted, Baton": baton["p50_ms"],
                "checkpoint API": other and other["n"] and other["suspend_ms"] + other["p50_ms"],
                "new process": new and new["p50_ms"],
            }
    title = "A request to a model whose GPU memory another program has taken"
    return {"switch.svg": (title, chart.bars(title, groups))} if groups else {}


def corun(runs):
    """How many requests took how long in each way, for one pair; nothing if no run has it."""
    found = corunning.spread(runs)
    if not found:
        return {}
    served, trained, times = found
    ways = {said: times[way] for way, said in SAID.items() if way in times}
    least = min(of[0] for of in ways.values())
    wide = 0 < WIDE * least < max(of[-1] for of in ways.values())
    series = {way: list(zip(of, range(101))) for way, of in ways.items()}
    plot = chart.Plot("milliseconds", "% of requests", series, logarithmic=wide)
    title = f"How long requests to {name_of(served)} take beside a training of {name_of(trained)}"
    return {"corun_times.svg": (title, chart.lines(title, [plot]))}


def llm(runs):
    """Two vLLM servers on one GPU: their memory, and how soon each answers; nothing of other runs."""
    found = [
        run
        for run in runs
        if run["engine"] == "vllm" and len(run["models"]) == 2
        if all(asked and alone for *_, asked, alone in serving_llms.asked_of(run))
    ]
    if not found:
        return {}
    # With CUDA graphs if there is such a run, as servers usually are.
    run = max(found, key=lambda run: run["graphs"])
    groups = {}
    for name, model, asked, alone in serving_llms.asked_of(run):
        started = run["alone"][model]["ready_s"] * 1000
        groups[f"{name}: first token"] = {
            "alone, without Baton": serving_llms.figures(alone)[1],
            "has the GPU": serving_llms.figures([one["resident"] for one in asked])[1],
            "the other one has it": serving_llms.figures([one["switch"] for one in asked])[1],
            "stopped, and started anew": started,
        }
    parts = {}
    for one in run["baton"]["programs"]:
        size = (one["resident_bytes"] + one["evicted_bytes"]) / 2**30
        parts[one["name"]] = (size, f"{one['name']}: {size:.0f} GiB")
    gpu = float(run["machine"]["gpus"][0]["memory.total"].split()[0]) / 2**10
    title = f"Two vLLM servers on one GPU, each with {run['share']:g} of its memory"
    body, bottom = chart.bars_from(chart.TOP + 70, groups)
    memory = chart.stacked("their memory", parts, gpu, f"all that the GPU has: {gpu:.0f} GiB")
    return {"llm.svg": (title, chart.picture(title, bottom, [*memory, *body]))}
