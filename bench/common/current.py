"""Which measurements are current: of several runs of a kind, the newest of every row counts. Pure.

A kind's file in `bench/results` holds one run, as its script wrote it, or `runs`, a list of them.
Every run keeps its machine and its command; rows that a newer run has measured again are dropped.
"""

from common import corunning, switching

RUNS = "runs"


def runs_of(result):
    """The runs in a file."""
    return result.get(RUNS) or [result]


def date_of(run):
    """When a run was made; the hook benchmark does not say."""
    return run.get("machine", {}).get("date", "")


def newest_by(rows_of, put, runs):
    """Runs with only those rows whose key no later run has; runs without any row are left out.

    `rows_of(run)` is a list of (key, row), and `put(run, rows)` a run with these rows only.
    """
    last = {key: run for run in runs for key, _ in rows_of(run)}
    kept = [(run, [row for key, row in rows_of(run) if last[key] is run]) for run in runs]
    return [put(run, rows) for run, rows in kept if rows]


def named(field, more=lambda run: ()):
    """For `newest_by`: a run's rows are the items of its mapping `field`."""
    return (
        lambda run: [((name, *more(run)), name) for name in run[field]],
        lambda run, names: run | {field: {name: run[field][name] for name in names}},
    )


def switch_rows(run):
    """Rows, trainings and loads of a switching run."""
    rows = [(("row", *switching.key(row)), ("rows", row)) for row in run["rows"]]
    rows += [(("training", row["label"]), ("training", row)) for row in run["training"]]
    return rows + [
        (("equality", row["load"]), ("equality", row)) for row in run["equality"]
    ]


def switch_put(run, rows):
    """A switching run with these rows only."""
    fields = ("rows", "training", "equality")
    return run | {field: [row for name, row in rows if name == field] for field in fields}


def beside_baseline(field, baseline, more=lambda run: ()):
    """For `newest_by`: a run's rows are those of its list `field`, by name. The one called
    `baseline` is kept with any other: it is what they are compared with.
    """

    def rows_of(run):
        return [((row["name"], *more(run)), row) for row in run[field] if row["name"] != baseline]

    def put(run, rows):
        return run | {field: [row for row in run[field] if row["name"] == baseline or row in rows]}

    return rows_of, put


def gpu_jobs(run):
    """The programs of a run on several GPUs; what ran beside them is no program."""
    found = run["several_gpus"]
    return [(job, job) for job in found if isinstance(found[job], dict)]


def gpu_jobs_put(run, jobs):
    """A run on several GPUs with these programs only, and all that ran beside them."""
    found = run["several_gpus"]
    kept = {job: one for job, one in found.items() if job in jobs or not isinstance(one, dict)}
    return run | {"several_gpus": kept}


def corun_current(runs):
    """Runs of the cells that the report shows, with what the same models did alone in them.

    Of several runs of a cell that with the most requests counts, of as many the newest. Runs of a
    coordinator with other options are not kept.
    """
    best = {}
    for run in runs:
        for cell in run["cells"]:
            if not corunning.is_usual(run, cell) or None in (cell["served"], cell["trained"]):
                continue
            key = corunning.panel_of(run, cell), cell["served"], cell["trained"], cell.get("load")
            if key not in best or cell.get("n", 0) >= best[key][1].get("n", 0):
                best[key] = run, cell
    whole = corunning.spread_of(runs)
    kept = []
    for run in runs:
        cells = [cell for owner, cell in best.values() if owner is run]
        models = {cell[name] for cell in cells for name in ("served", "trained")}
        if run is whole:
            kept.append(run)
        elif cells:
            alone = [c for c in run["cells"] if {c["served"], c["trained"]} - {None} <= models]
            alone = [cell for cell in alone if cell["way"] == corunning.ALONE]
            kept.append(run | {"cells": [c for c in run["cells"] if c in alone or c in cells]})
    return kept


def pruned(kind, runs):
    """The runs of a kind that count, oldest first."""
    runs = sorted(runs, key=date_of)
    if kind == "corun":
        return corun_current(runs)
    if kind == "switch":
        return newest_by(switch_rows, switch_put, runs)
    if kind == "cost":
        rows_of, put = named("workloads", lambda run: (bool(run.get("serve")), run.get("beside")))
        return newest_by(rows_of, put, runs)
    if kind == "allocators":
        return newest_by(
            lambda run: [(row["programs"], row) for row in run["groups"]],
            lambda run, rows: run | {"groups": rows},
            runs,
        )
    if kind == "resting":
        # Of programs of 1 GiB where nothing else is said.
        size = lambda run: [one.get("holder_megabytes", 1024) for one in run["classes"].values()][:1]  # noqa: E731
        return newest_by(*named("classes", lambda run: tuple(size(run))), runs)
    if kind in ("takeover", "upgrades"):
        of = lambda run: (run.get("from_the_version_before", False), *(row["name"] for row in run["rows"]))  # noqa: E731
        return newest_by(lambda run: [(of(run), run)], lambda run, _: run, runs)
    if kind == "strikes":
        return newest_by(lambda run: [(run["state"], run)], lambda run, _: run, runs)
    if kind in ("watched", "stopped"):
        return newest_by(*named("parts"), runs)
    if kind == "hostile":
        rows_of, put = beside_baseline("rows", "without", lambda run: (run["driver"],))
        return newest_by(rows_of, put, runs)
    if kind == "timeouts":
        case = lambda one: (one["program"], one["limit_seconds"], str(one["settings"]), one["seconds"], one["how"])  # noqa: E731
        rows_of = lambda run: [(case(one), one) for one in run["cases"]]  # noqa: E731
        return newest_by(rows_of, lambda run, rows: run | {"cases": rows}, runs)
    if kind == "several_gpus":
        return newest_by(gpu_jobs, gpu_jobs_put, runs)
    if kind == "llm":
        of = lambda run: (run["engine"], run["graphs"], tuple(run["models"]))  # noqa: E731
        return newest_by(lambda run: [(of(run), run)], lambda run, _: run, runs)
    if kind == "zoo":
        return newest_by(
            lambda run: [(row["name"], row) for row in run["rows"]],
            lambda run, rows: run | {"rows": rows},
            runs,
        )
    if kind == "stuck":
        rows_of, put = named("modes", lambda run: (run.get("class", "batch"),))
        return newest_by(rows_of, put, runs)
    if kind == "driver_facts":
        return newest_by(
            lambda run: [((row["question"], row["situation"]), row) for row in run["rows"]],
            lambda run, rows: run | {"rows": rows},
            runs,
        )
    if kind == "pausing":
        return newest_by(
            lambda run: [((run["queue"], run.get("gpu")), run)], lambda run, _: run, runs
        )
    return runs[-1:]


def joined(kind, results):
    """One file of several of a kind."""
    runs = pruned(kind, [run for result in results for run in runs_of(result)])
    return runs[0] if len(runs) == 1 else {"kind": kind, RUNS: runs}
