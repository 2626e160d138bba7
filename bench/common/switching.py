"""Makes figures and rows of the switching measurement's samples, and one run of several. Pure.

A **row** is one model in one variant. Times are milliseconds, of a request from the input on the
host to the outputs on the host, as the server measures it.
"""

from common import stats, table, watching
from common.stats import quantile

READY = "ready"
# The load that has the GPU when a request comes, by name.
TRAINING, KERNEL = "training", "kernel"
BESIDE = {TRAINING: "resnet152", KERNEL: "kernel"}
# Variants by name: the options of the coordinator.
SCENES = {
    "baton": [],
    "one group": ["--pipeline", "one"],
    "extent by extent": ["--pipeline", "extents"],
    "not pipelined": ["--pipeline", "off"],
    "no hash": ["--no-hash"],
}
BASELINES = ["checkpoint", "new process"]
# The usual ones, and "baton" while all viewers look at the coordinator.
USUAL = [*SCENES, *BASELINES]
WATCHED = "watched"
SCENES[WATCHED] = watching.OPTIONS
VARIANTS = [*USUAL, WATCHED]

# Speed of the training alone, first and last; in between, with requests.
ALONE, AGAIN = "none", "none, again"

# How much longer than the larger of ready and transfer a request may take.
LIMITS = {
    "resnet152": 1.25,
    "inception_v3": 1.25,
    "bert": 1.25,
    "llama_1b": 1.10,
    "llama_7b": 1.10,
    "llama_7b_segments": 1.10,
    "llama_7b_segments_masked": 1.10,
    "jax_7b": 1.10,
    "driver": None,
}
# How soon after a request the first launch has to come, a kernel of 100 ms being under way.
FIRST_LAUNCH_LIMIT_MS = 3
# How many times as long suspending and resuming by the checkpoint API has to take.
SPEEDUP = 20

PLAIN = (
    "bytes_in",
    "bytes_out",
    "bytes_unchanged",
    "bytes_zero",
    "in_seconds",
    "out_seconds",
    "drain_ms",
    "pause_ms",
    "unmap_ms",
    "map_ms",
    "switch_ms",
    "groups",
    "extents",
    "waits",
    "waited_ms",
    "opaque",
)
PHASES = ("decided_ms", "granted_ms", "first_extent_ms", "first_launch_ms", "all_resident_ms")


def figures(found):
    """Median, 99 %, extremes and all of some times."""
    return {
        "n": len(found),
        "p50_ms": stats.median(found),
        "p99_ms": quantile(found, 0.99) if found else None,
        "min_ms": stats.least(found),
        "max_ms": max(found, default=None),
        "samples_ms": [round(ms, 3) for ms in found],
    }


def times(samples):
    """Figures of the samples' times."""
    return figures([sample["ms"] for sample in samples])


def digests(samples):
    """{input: digests seen}, the inputs as JSON has them."""
    seen = {}
    for sample in samples:
        ways = seen.setdefault(str(sample["input"]), [])
        if sample["digest"] not in ways:
            ways.append(sample["digest"])
    return seen


def agrees(seen, reference):
    """True if every input has one digest, and the reference's where that has it."""
    return bool(seen) and all(
        len(ways) == 1 and ways == reference.get(number, ways) for number, ways in seen.items()
    )


def record_medians(samples):
    """Medians over the coordinator's records of the switches, of every figure in them."""
    records = [sample["record"] for sample in samples if sample.get("record")]
    phases = [record.get("phases") or {} for record in records]
    found = {field: stats.median([r.get(field) for r in records]) for field in PLAIN}
    found |= {field: stats.median([p.get(field) for p in phases]) for field in PHASES}
    found = {field: value for field, value in found.items() if value is not None}
    return {"records": len(records), **found}


def first_launches(samples):
    """Figures of the times from wanting the GPU to the first launch, where the coordinator knows.

    And before how many of them the other program's work was taken off the GPU midway.
    """
    records = [sample["record"] for sample in samples if sample.get("record")]
    found = [(record.get("phases") or {}).get("first_launch_ms") for record in records]
    paused = sum(bool(record.get("pause_ms")) for record in records)
    return {**figures([ms for ms in found if ms is not None]), "paused": paused}


def left_bytes(samples):
    """Bytes copied to the host after each request, and not for it: the server's own, as it left.

    From one status before a request to the next, less what the request's own switch copied out.
    None where that is not known. The last sample has no next.
    """
    return [
        later["had_left"] - sample["had_left"] - sample["record"]["bytes_out"]
        if sample.get("record")
        else None
        for sample, later in zip(samples, samples[1:])
    ]


def floor_ms(size, gbps):
    """How long that many bytes take to be copied to the GPU; None if the bandwidth is unknown."""
    return size / gbps / 1e6 if gbps else None


def ratio(p50, ready, floor):
    """Against the larger of what a ready model takes and what the transfer takes."""
    if p50 is None or ready is None:
        return None
    return p50 / max(ready, floor or 0)


def quartiles(values):
    """The three quartiles."""
    ordered = sorted(values)
    return [quantile(ordered, share) for share in (0.25, 0.5, 0.75)] if ordered else None


def evicted_row(samples, ready, memory, gbps):
    """The figures of a variant of the coordinator.

    `ready` is the row of the same server when it was resident, one request after the other;
    `memory` says `parameter_bytes` and `tenant_bytes`. Each sample has the `rested` one before it.
    """
    floors = {what: floor_ms(memory[f"{what}_bytes"], gbps) for what in ("parameter", "tenant")}
    row = times(samples)
    left = left_bytes(samples)
    return row | {
        "ready_ms": ready["p50_ms"],
        "ready_max_ms": ready["max_ms"],
        "rested_ms": stats.median([sample["rested"]["ms"] for sample in samples]),
        **memory,
        "gbps": gbps,
        "transfer_floor_ms": floors["parameter"],
        "tenant_floor_ms": floors["tenant"],
        "ratio": ratio(row["p50_ms"], ready["p50_ms"], floors["parameter"]),
        "tenant_ratio": ratio(row["p50_ms"], ready["p50_ms"], floors["tenant"]),
        "rested_ratios": quartiles(
            ratio(sample["ms"], sample["rested"]["ms"], floors["parameter"]) for sample in samples
        ),
        "evict_ms": stats.median([sample["evict_ms"] for sample in samples]),
        "always_away": all(sample["was_away"] for sample in samples),
        "left_bytes": stats.median(left),
        "left_bytes_max": max((one for one in left if one is not None), default=None),
        "switch": record_medians(samples),
        "first_launch": first_launches(samples),
    }


def judged(row):
    """How many times as long a request takes as it must: as the resident one before it, if that
    was measured, and else as resident ones one after the other.
    """
    paired = row.get("rested_ratios")
    return paired[1] if paired else row["ratio"]


def beside(row):
    """The load that had the GPU; where none is named, a training or nothing."""
    return row.get("beside", TRAINING)


def label(model, variant, neighbour):
    """The name of a row."""
    return f"{model}, {variant}" + (f", beside a {KERNEL}" if neighbour == KERNEL else "")


def key(row):
    """Which row it is, in however many runs; a ready one belongs to its scene."""
    return row["model"], row["variant"], row.get("scene"), beside(row)


def cycle_order(row):
    """The training alone first, and what was measured after all at the end."""
    return row["label"] == AGAIN, row["cycle"] or 0


def merge(results):
    """One result of several of kind `switch`, the newest row counting; `origins` lists them."""
    results = sorted(results, key=lambda result: result["machine"]["date"])
    rows = {key(row): row for result in results for row in result["rows"]}
    trainings = {row["label"]: row for result in results for row in result["training"]}
    equality = {
        (row["load"], *row["options"]): row for result in results for row in result["equality"]
    }
    return {
        "kind": "switch",
        "origins": [result["machine"] for result in results],
        "rows": list(rows.values()),
        "training": sorted(trainings.values(), key=cycle_order),
        "equality": list(equality.values()),
        "failures": remaining_failures(results),
    }


def remaining_failures(results):
    """Failures of all results, but for rows that a newer one has."""
    failures = []
    for result in results:
        found = tuple(
            label(row["model"], row["variant"], beside(row)) + ": " for row in result["rows"]
        )
        failures = [failure for failure in failures if not failure.startswith(found)]
        failures += result["failures"]
    return failures


def of(rows, model, variant, scene=None):
    """The row beside the training, or None."""
    wanted = (model, variant, scene, TRAINING)
    return next((row for row in rows if key(row) == wanted), None)


def models_of(rows):
    """Models in the order of LIMITS."""
    return [model for model in LIMITS if any(row["model"] == model for row in rows)]


def speedup(rows, model):
    """How many times as long suspending and resuming takes as a request to an evicted model."""
    baton, other = of(rows, model, "baton"), of(rows, model, "checkpoint")
    if not baton or not other or not other["n"]:
        return None
    return (other["suspend_ms"] + other["resume_ms"]) / baton["p50_ms"]


def same_everywhere(rows, model):
    """True if a model's outputs are the same in all variants, input by input."""
    found = {}
    for row in rows:
        if row["model"] == model:
            for number, ways in row["digests"].items():
                found.setdefault(number, set()).update(ways)
    return all(len(ways) == 1 for ways in found.values())


def weights_left(row):
    """True if more was copied out than a model can have beside its weights.

    Small weights share pages with what a request writes; that much is allowed.
    """
    beside = row["tenant_bytes"] - 0.95 * row["parameter_bytes"]
    return row["left_bytes_max"] is not None and row["left_bytes_max"] > beside


def must_launch_soon(row):
    """True if a row is held to the limit of the first launch."""
    return row["variant"] == "baton" and beside(row) == KERNEL and bool(LIMITS[row["model"]])


def is_late(row):
    """True if the first launch had to come soon, and did not."""
    p99 = row["first_launch"]["p99_ms"] if must_launch_soon(row) else 0
    return p99 is None or p99 > FIRST_LAUNCH_LIMIT_MS


def shortcomings(result):
    """The faults of a result, in words."""
    rows, wrong = result["rows"], []
    for row in rows:
        name = label(row["model"], row["variant"], beside(row))
        if not row["equal"]:
            wrong.append(f"{name}: outputs differ")
        if row.get("always_away") is False:
            wrong.append(f"{name}: something of it was on the GPU before a request")
        if is_late(row):
            late = figure(row["first_launch"]["p99_ms"], 2)
            wrong.append(f"{name}: first launch P99 {late} ms, limit {FIRST_LAUNCH_LIMIT_MS} ms")
    for model in models_of(rows):
        if not same_everywhere(rows, model):
            wrong.append(f"{model}: outputs differ between variants")
        row, limit = of(rows, model, "baton"), LIMITS[model]
        if row and weights_left(row):
            wrong.append(
                f"{model}: {megabytes(row['left_bytes_max'])} MB left with it, weights too"
            )
        times_as_long = row and judged(row)
        if row and limit and (times_as_long is None or times_as_long > limit):
            wrong.append(f"{model}: {figure(times_as_long, 2)} times as long, limit {limit:g}")
        times_faster = speedup(rows, model)
        if limit and times_faster is not None and times_faster < SPEEDUP:
            wrong.append(f"{model}: only {times_faster:.1f} times as fast as the checkpoint API")
    wrong += [f"{row['load']}: {row['verdict']}" for row in result["equality"] if not row["equal"]]
    return wrong + result["failures"]


def training_row(label, cycle, window, alone):
    """The training's speed in a window, against its speed alone; `cycle` is None without requests.

    `window`: steps, seconds, and the seconds that training and server had the GPU. `alone`: the
    same of the training alone. `kept` is the speed for the time that the training had the baton:
    what it lacks of 1, switching costs beyond the time that it takes.
    """
    speed, least = window["steps"] / window["seconds"], alone["steps"] / alone["seconds"]
    share = window["trainer_seconds"] / window["seconds"]
    whole = alone["trainer_seconds"] / alone["seconds"]
    throughput = speed / least
    return {
        "label": label,
        "cycle": cycle,
        **window,
        "steps_per_second": speed,
        "throughput": throughput,
        "share": share / whole if whole else None,
        "away": window["server_seconds"] / window["seconds"],
        "kept": throughput / (share / whole) if share and whole else None,
    }


def compared(bare, again, baton):
    """(verdict, equal) of a load's digests by request: bare twice, and evicted before each."""
    if bare != again:
        return "two bare runs differ", False
    if len(baton) != len(bare):
        return f"{len(baton)} of {len(bare)} requests", False
    if bare != baton:
        first = next(i for i, (a, b) in enumerate(zip(bare, baton)) if a != b)
        return f"DIFFERS at request {first}", False
    if len(set(bare)) < 2:
        return "all requests have one answer: they show nothing", False
    return "equal", True


def figure(value, digits=1):
    """A number for a table, by default with one digit."""
    return table.figure(value, digits)


def megabytes(value):
    """A number of bytes for a table."""
    return figure(value and value / 1e6, 0) if value != 0 else "0"


def spread(three):
    """Quartiles for a table."""
    return "-" if three is None else f"{three[1]:.2f} ({three[0]:.2f} to {three[2]:.2f})"


HEADER = [
    "model",
    "variant",
    "p50 ms",
    "max ms",
    "times",
    "outputs",
    "ready ms",
    "rested ms",
    "transfer ms",
    "ratio",
    "to rested",
    "limit",
    "in MB",
    "left MB",
    "granted ms",
    "first launch ms",
    "all there ms",
    "groups",
]


def shown(row):
    """A line of the table."""
    switch = row.get("switch", {})
    limit = LIMITS.get(row["model"]) if row["variant"] == "baton" else None
    return [
        row["model"],
        row["variant"],
        figure(row["p50_ms"], 2),
        figure(row["max_ms"], 2),
        row["n"],
        "equal" if row["equal"] else "DIFFER",
        figure(row.get("ready_ms"), 2),
        figure(row.get("rested_ms"), 2),
        figure(row.get("transfer_floor_ms"), 2),
        figure(row.get("ratio"), 2),
        spread(row.get("rested_ratios")),
        "" if limit is None else f"{limit:g}",
        megabytes(switch.get("bytes_in")),
        megabytes(row.get("left_bytes")),
        figure(switch.get("granted_ms")),
        figure(switch.get("first_launch_ms")),
        figure(switch.get("all_resident_ms")),
        figure(switch.get("groups"), 0),
    ]


def in_order(rows):
    """Rows by model, then the variants, ready ones first."""
    order, models = [READY, *VARIANTS], list(LIMITS)
    return sorted(rows, key=lambda row: (models.index(row["model"]), order.index(row["variant"])))


def listed(rows):
    """Rows of the table, ready once; those beside a kernel have their own."""
    kept = [row for row in rows if row["variant"] != READY or row.get("scene") == "baton"]
    return in_order(row for row in kept if beside(row) != KERNEL)


KERNEL_HEADER = [
    "model",
    "variant",
    "times",
    "midway",
    "outputs",
    "granted ms",
    "launches",
    "first launch P50 ms",
    "P99 ms",
    "max ms",
    "limit",
    "request P50 ms",
    "P99 ms",
    "max ms",
    "ready ms",
]


def kernel_shown(rows):
    """A line for each row beside a kernel."""
    lines = []
    for row in in_order(row for row in rows if beside(row) == KERNEL and row["variant"] != READY):
        launch = row["first_launch"]
        lines.append(
            [
                row["model"],
                row["variant"],
                row["n"],
                launch["paused"],
                "equal" if row["equal"] else "DIFFER",
                figure(row["switch"].get("granted_ms"), 2),
                launch["n"],
                *(figure(launch[field], 2) for field in ("p50_ms", "p99_ms", "max_ms")),
                FIRST_LAUNCH_LIMIT_MS if must_launch_soon(row) else "",
                *(figure(row[field], 2) for field in ("p50_ms", "p99_ms", "max_ms")),
                figure(row["ready_ms"], 2),
            ]
        )
    return lines


COST_HEADER = ["model", "baton ms", "suspend ms", "resume ms", "times as fast", "new process ms"]


def cost_shown(rows):
    """A line for each model: against what users have today."""
    lines = []
    for model in models_of(rows):
        baton, other, new = (of(rows, model, name) for name in ("baton", *BASELINES))
        if not other and not new:
            continue
        lines.append(
            [
                model,
                figure(baton and baton["p50_ms"]),
                figure(other and other["suspend_ms"], 0),
                figure(other and other["resume_ms"], 0),
                figure(speedup(rows, model)),
                figure(new and new["p50_ms"], 0),
            ]
        )
    return lines


TRAINING_HEADER = ["requests", "steps/s", "of alone", "time held", "speed while held", "s"]


def training_shown(row):
    """A line of the training's table."""
    return [
        row["label"],
        figure(row["steps_per_second"], 2),
        figure(row["throughput"], 3),
        figure(row["share"], 3),
        figure(row["kept"], 3),
        figure(row["seconds"], 0),
    ]


EQUALITY_HEADER = ["load", "requests", "outputs", "MB", "options"]


def equality_shown(row):
    """A line of the table of loads."""
    return [
        row["load"],
        row["requests"],
        row["verdict"],
        megabytes(row["tenant_bytes"]),
        " ".join(row["options"]) or "-",
    ]
