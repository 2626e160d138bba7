#!/usr/bin/env python3
"""Makes docs/results.md and its pictures from the result files in bench/results.

    python3 bench/report.py
    python3 bench/report.py --add corun.json switch.json

With --add it first takes new results in: `bench/results` has one file a kind, with the runs that
count (`common/current.py`). Each run keeps its machine, versions, command and all its figures; the
document shows a short table for each question. The table of the README is the first one.
"""

import argparse
import collections
import json
import pathlib
import sys

import keeper
import pictures
import stopped
from common import corunning, current, hostility, machine, serving_llms, switching, table, zooing
from common.ledger import hidden
from common.models import name_of
from loads import ENVIRONMENT

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "docs" / "results.md"

WAYS = {
    "baton": "Baton",
    "baton, no graphs": "Baton, models without CUDA graphs",
    "exclusive": "Baton, `--mode exclusive`: turns instead of co-running",
    "no preemption": "Baton, `--no-preempt`: queued work is waited for",
    "default": "the driver's time slices",
    "mps": "MPS",
    "mps priority": "MPS, the training with lower priority",
}
PAUSING = {
    "pause": "the driver's call takes a kernel off the GPU",
    "granted": "another program wants the GPU, until it may launch",
    "first_kernel": "... until its first kernel has ended, memory moved",
    "small_kernel": "a small kernel beside a preempted program",
    "small_kernel_alone": "the same, alone on the GPU",
}
# The state of a stopped program before its memory went to others.
STOPPED = {
    "in_place": "inside the driver: it goes on in the same memory",
    "kill": "killed meanwhile",
    "coordinator_dies": "the coordinator killed meanwhile",
    "programs": "C programs, stopped at random",
}
# A guest's deeds, by their names in `hostile.py`.
GUESTS = {
    "without": "nobody",
    "fair": "nothing wrong: it trains",
    "burns": "uses up processors",
    "floods": "sends messages of every kind",
    "connects": "connects for ever",
    "uninvited": "connects for ever, not on the list",
    "crowds": "holds 10,000 connections",
    "hoards": "takes all that it gets",
    "scribbles": "writes on all pages that it has",
    "stops": "trains, stopped at random",
    "held": "trains, and does not obey at times",
    "apart": "has memory, and cannot be paused",
    "mute": "takes the GPU and says nothing more",
}
# Whom a tenant of the cost measurement has beside it.
BESIDE = {
    None: "only tenant",
    "idle": "beside an idle latency program",
    "left": "after a latency program has left",
}
# The measurements with viewers and without, but for calls.
WATCHED = {"demo": "The demo", "switch": "An evicted model's answer"}
# Kinds without a title belong to the section before them.
TITLES = {
    "corun": "How long do requests take beside a training?",
    "switch": "How soon does an evicted model answer?",
    "llm": "How soon do LLM servers answer that each take most of the GPU?",
    "pausing": "How long does it take to take a program off the GPU?",
    "resting": "And one that has nothing to do?",
    "takeover": "And when the coordinator is killed again and again?",
    "upgrades": "And when another version follows it?",
    "strikes": "And when processes die, stop and wait at every fault point?",
    "keeper": "What does it cost that another coordinator can follow?",
    "stuck": "Beside a kernel that never ends, and a program that is stopped (SIGSTOP)?",
    "hostile": "Beside another user's program that does harm?",
    "sharing": "And programs that do not fit together?",
    "weights": "And programs that have the same weights?",
    "several_gpus": "And programs that use two GPUs?",
    "timeouts": "And programs with a watchdog?",
    "allocators": "And programs that get their memory in other ways?",
    "zoo": "And programs that are evicted at random all the time?",
    "transfer": "How fast is memory moved?",
    "cost": "What does it cost a program that has the GPU to itself?",
    "conformance": "Do unmodified programs compute the same, and does the shim see every call?",
}
COMMANDS = {
    "corun": "bench/corun.py --baton target/release",
    "switch": "bench/switch.py --baton target/release",
    "llm": "bench/llm.py --baton target/release",
    "pausing": "bench/pausing.py --baton target/release",
    "resting": "bench/resting.py --baton target/release",
    "takeover": "bench/takeover.py --baton target/release",
    "upgrades": "bench/takeover.py --baton target/release --upgrades --kills 20",
    "strikes": "STRIKES_RECORD=strikes.json tests/strikes",
    "keeper": "bench/keeper.py --baton target/release --programs target/release/c-programs",
    "stuck": "bench/stuck.py --baton target/release",
    "stopped": "bench/stopped.py --baton target/release",
    "hostile": "bench/hostile.py --baton target/release",
    "sharing": "bench/sharing.py --baton target/release",
    "weights": "bench/weights.py --baton target/release",
    "several_gpus": "bench/several_gpus.py --baton target/release --evict",
    "timeouts": "bench/timeouts.py --baton target/release",
    "allocators": "bench/allocators.py --baton target/release",
    "zoo": "bench/zoo.py --baton target/release",
    "generated": "bench/generated.py --scripts FOLDER --programs target/release --baton target/release",
    "transfer": "bench/transfer.py --baton target/release",
    "cost": "bench/cost.py --baton target/release/libbaton.so",
    "hook_cost": "cargo bench -p baton-tests --bench hook_cost",
    "watched": "bench/watched.py --baton target/release --driver sim",
    "conformance": "bench/conformance.py --baton target/release/libbaton.so",
    "trace": "bench/trace_check.py --baton target/release/libbaton.so",
}


def figure(value, digits=2):
    """A number for a table."""
    return "–" if value is None else f"{value:.{digits}f}"


def between(values, digits=2, unit=""):
    """The least and the largest value, or the one that there is."""
    low, high = (f"{end(values):.{digits}f}" for end in (min, max))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def middle(values):
    """The median; of an even number the larger of the two in the middle."""
    return sorted(values)[len(values) // 2]


def ratio_text(value):
    """A ratio with about three digits."""
    return f"{value:.{0 if value >= 9.95 else 2}f}"


def ratios(values):
    """The least and the largest ratio."""
    return f"{ratio_text(min(values))} to {ratio_text(max(values))}"


def origin(runs):
    """GPU, driver and versions of a run, in a line."""
    gpu = runs["gpus"][0] if runs["gpus"] else None
    packages = ", ".join(f"{name} {version}" for name, version in runs["packages"].items())
    where = f"{gpu['name']}, {gpu['memory.total']}, driver {gpu['driver_version']}" if gpu else ""
    return f"{where or 'No GPU'}; {runs['cpu']}; Python {runs['python']}; {packages}"


def command_of(kind):
    """The command that measures a kind."""
    command = COMMANDS[kind]
    return f"python3 {command}" if command.startswith("bench/") else command


def source(kind, runs):
    """Which command measures it, and which file has the runs."""
    dates = sorted({current.date_of(run)[:10] for run in runs} - {""})
    counted = f"{len(runs)} runs" if len(runs) > 1 else "one run"
    when = f", {' and '.join(dates)}" if dates else ""
    file = f"[{kind}.json](../bench/results/{kind}.json)"
    return f"Measured by `{command_of(kind)}` ({file}: {counted}{when})."


def section(kind, runs, intro, *parts):
    """A section: what was asked, where the answer comes from, and the tables."""
    titled = [f"## {TITLES[kind]}"] if kind in TITLES else []
    return "\n\n".join([*titled, f"{intro} {source(kind, runs)}", *(p for p in parts if p)])


# The sections by kind: each is a function of the runs.


def corun_section(runs):
    """Requests beside a training, each against itself alone."""
    panels, parts = corunning.matrix(runs), []
    lines = []
    for way, cells in panels.items():
        p99 = [ratio for ratio, _ in cells.values() if ratio]
        kept = [share for _, share in cells.values() if share]
        if p99:
            trained = between(kept) if kept else "–"
            lines.append(
                [WAYS.get(way, way), len(p99), ratios(p99), ratio_text(middle(p99)), trained]
            )
    if lines:
        header = ["way to share", "pairs", "P99, × alone", "median", "training, of alone"]
        parts.append(table.markdown(header, lines))
    if "baton" in panels:
        found = panels["baton"]
        trained = sorted({pair[1] for pair in found})
        lines = [
            [name_of(served)]
            + [
                f"{figure(found[served, other][0])}, {figure(found[served, other][1])}"
                if (served, other) in found
                else "–"
                for other in trained
            ]
            for served in sorted({pair[0] for pair in found})
        ]
        parts.append(
            "Under Baton, pair by pair: P99 × alone, and the training's share of its speed."
        )
        parts.append(table.markdown(["requests to, beside", *map(name_of, trained)], lines))
    for pair, points in corunning.swept(runs).items():
        served, trained = pair.split(" beside ")
        said = "; ".join(f"{load:g}: {p99:.2f}, {kept:.2f}" for load, p99, kept in sorted(points))
        parts.append(
            f"By load (P99 × alone, training), {name_of(served)} beside {name_of(trained)}: {said}."
        )
    return section(
        "corun",
        runs,
        "Requests come at random to one model (CUDA graphs, half of what it could answer alone) "
        "while another trains; both fit the GPU. Every ratio is to the same model alone in the "
        "same run. What cannot keep up queues: then P99 grows with the length of the measurement.",
        *parts,
        *embedded("corun", runs),
    )


def switch_section(runs):
    """How soon an evicted model answers, and what that costs the training that it interrupts."""
    result = switching.merge(runs)
    rows, parts = result["rows"], []
    lines = []
    for model in switching.models_of(rows):
        ready, baton, other, new = (
            switching.of(rows, model, *which)
            for which in ((switching.READY, "baton"), ("baton",), ("checkpoint",), ("new process",))
        )
        if baton:
            lines.append(
                [
                    name_of(model),
                    figure(baton["tenant_bytes"] / 1e9),
                    figure(baton.get("rested_ms"), 1),
                    figure(ready and ready["p50_ms"], 1),
                    figure(baton.get("transfer_floor_ms"), 1),
                    figure(baton["p50_ms"], 1),
                    figure(switching.judged(baton)),
                    figure(baton["switch"].get("first_launch_ms"), 1),
                    figure(other and other["n"] and other["suspend_ms"] + other["resume_ms"], 0),
                    figure(new and new["p50_ms"], 0),
                ]
            )
    if lines:
        header = ["model", "GB", "resident", "one after the other", "PCIe", "evicted", "ratio"]
        header += ["first launch", "checkpoint API", "new process"]
        parts.append(table.markdown(header, lines))
    beside = [
        [
            name_of(row["model"]),
            f"{row['first_launch']['paused']} of {row['n']}",
            *(figure(row["first_launch"][field]) for field in ("p50_ms", "p99_ms", "max_ms")),
            f"{figure(row['p50_ms'], 1)} ({figure(row['ready_ms'], 1)})",
        ]
        for row in switching.in_order(rows)
        if switching.beside(row) == switching.KERNEL and row["variant"] == "baton"
    ]
    if beside:
        header = [
            "model",
            "stopped midway",
            "first launch P50",
            "P99",
            "most",
            "request (resident)",
        ]
        parts += [
            "The same while another program runs kernels of 100 ms that fill the GPU (ms):",
            table.markdown(header, beside),
        ]
    parts += [switch_notes(result), *embedded("switch", runs)]
    return section(
        "switch",
        runs,
        "Milliseconds, medians. `resident`: the model is on the GPU already, and rested as long as "
        "an evicted one; `one after the other`: without a rest, when a processor is faster. `PCIe`: "
        "its weights at the speed of PyTorch's copies. `ratio`: each evicted request to the larger "
        "of that and the resident one before it; where that was not measured, to those one after "
        "the other. Checkpoint API: suspend and resume, without the request. Small models wait for "
        "the CPU's launches, whose times vary from run to run.",
        *parts,
    )


def switch_notes(result):
    """The training's speed, the comparison of outputs, and what fell short."""
    rows, notes = result["rows"], []
    whole = [
        f"{name_of(model)} {row['p50_ms']:.1f} ms (resident {row['ready_ms']:.1f})"
        for model in switching.models_of(rows)
        if (row := switching.of(rows, model, "not pipelined"))
    ]
    if whole:
        notes.append(
            "A request that waits until all memory is there (`--pipeline off`, on another day): "
            f"{', '.join(whole)}."
        )
    asked = [row for row in result["training"] if row["cycle"]]
    if asked:
        notes.append(
            "A training that an evicted server interrupts every "
            f"{asked[0]['cycle']:g} to {asked[-1]['cycle']:g} s keeps "
            f"{between([row['throughput'] for row in asked], 3)} of its speed."
        )
    if result["equality"]:
        equal = [row for row in result["equality"] if row["equal"]]
        notes.append(
            f"{len(equal)} of {len(result['equality'])} loads, evicted before every request and "
            "their memory overwritten meanwhile, give the same outputs as bare, bit for bit."
        )
    if wrong := switching.shortcomings(result):
        notes.append(f"Beyond the limit set for it: {'; '.join(map(named, wrong))}.")
    return " ".join(notes)


def named(sentence):
    """A sentence about a model, with the name that people write."""
    model, colon, rest = sentence.partition(":")
    return f"{name_of(model)}{colon}{rest}"


def pausing_section(runs):
    """How long preemption takes."""
    runs = sorted(runs, key=lambda run: (run["queue"], run.get("gpu") or 0))
    labels = [pausing_label(run) for run in runs]
    lines = [
        [text]
        + [" / ".join(figure(run[name][q]) for q in ("p50_ms", "p99_ms", "max_ms")) for run in runs]
        for name, text in PAUSING.items()
    ]
    count = sum(run["pauses"] for run in runs)
    wrong = sum(run["products"]["wrong"] for run in runs)
    moved = sum(run["bytes_in"] for run in runs) / 1e9
    return section(
        "pausing",
        runs,
        f"P50 / P99 / most, in milliseconds. {count} preemptions, {moved:.0f} GB moved to the "
        f"host and back meanwhile, {wrong} wrong results.",
        table.markdown(["", *labels], lines),
    )


def pausing_label(run):
    """The work that was interrupted."""
    what = "a full queue of kernels of 1 ms" if run["queue"] else "kernels of 100 ms"
    return what if run.get("gpu") is None else f"{what}, the second of two GPUs"


def stuck_section(runs):
    """Others' losses to programs that do not let go."""
    lines = []
    for run in runs:
        for mode, one in run["modes"].items():
            requests = one["requests"]
            alone = requests["alone"]
            more = [
                figure(requests[scene][q] - alone[q])
                for scene in ("endless", "stopped")
                for q in ("p50_ms", "p99_ms")
            ]
            lines.append([run.get("class", "batch"), mode, *more])
    lines.sort(key=lambda line: line[:2])
    header = ["class of the other", "mode", "endless: P50", "P99", "stopped: P50", "P99"]
    return section(
        "stuck",
        runs,
        "What a small request of class `latency` takes longer than alone, in ms. In mode "
        "`exclusive`, programs of one class wait for each other's turn to end (`--quantum`).",
        table.markdown(header, lines),
    )


def stopped_section(runs):
    """Others' losses to programs that are stopped at random, and a check that all is equal."""
    parts = {name: one for run in runs for name, one in run["parts"].items()}
    rows, others = stopped.tables(parts)
    tables = [table.markdown(stopped.HEADER, rows)] if rows else []
    if others:
        named = [[STOPPED.get(part, part), *more] for part, *more in others]
        tables.append(table.markdown(["stopped, and", *stopped.PART_HEADER[1:]], named))
    counted = sum(row[3] for row in rows)
    return section(
        "stopped",
        runs,
        f"Programs that do not fit together, stopped (SIGSTOP) {counted} times at random for up to "
        "2 s, against bare ones of as many steps. `most`: the longest step while none was stopped, "
        "and of those beside a stopped one. `memory was gone`: so often others had memory of the "
        "one that was stopped.",
        *tables,
    )


def resting_section(runs):
    """How soon programs give way that have been idle for a while."""
    lines = [
        [name, one.get("holder_megabytes", 1024) // 1024, one["ms"]["n"]]
        + [figure(one["ms"][key]) for key in ("p50_ms", "p99_ms", "max_ms")]
        for run in runs
        for name, one in run["classes"].items()
    ]
    wakes = ", ".join(f"{name} {count:.0f}" for name, count in runs[-1]["wakes"].items())
    return section(
        "resting",
        runs,
        "From the demand of another program until the gate of one is closed that has been idle for a "
        f"second, in milliseconds. The control thread of a program that is alone wakes so often a second: {wakes}.",
        table.markdown(["class", "GiB of it", "tries", "P50", "P99", "most"], lines),
    )


def takeover_table(runs, what):
    """The steps of programs whose coordinators are followed by others."""
    lines = []
    for run in runs:
        pool = f"{run['host_pool_bytes'] / 2**30:.1f}"
        followed = f"{run['kills']}, from the version before" if run.get("from_the_version_before") else run["kills"]
        for row in run["rows"]:
            times = row["beside"] or {}
            lines.append(
                [row["name"], row["class"], pool, followed, row["steps"], figure(row["p50_ms"])]
                + [figure(times[key]) if times else "-" for key in ("p99_ms", "max_ms")]
                + ["equal" if row["equal"] else "**differs**"]
            )
    header = ["program", "class", "host pool, GiB", f"{what}s", "steps", "P50", f"with one {what}: P99", "most", "results"]
    return table.markdown(header, lines)


def upgrades_section(runs):
    """Programs whose coordinators are followed by another version's."""
    answered, took = (runs[-1][key] for key in ("after_hand_over_ms", "served_again_ms"))
    return section(
        "upgrades",
        runs,
        "Half of the programs' memory fits the arena. Every second or two `baton upgrade` has the same version follow, which prepares "
        "itself while the other one serves; from the version before, each upgrade has new programs, with that version's library. Steps "
        "in milliseconds, of all and of those that an upgrade fell into, preparation included. "
        f"In the last run the successor answered {figure(answered['p50_ms'])} ms after the hand-over (P50; most "
        f"{figure(answered['max_ms'])}), and the command took {figure(took['p50_ms'])} ms.",
        takeover_table(runs, "upgrade"),
    )


def takeover_section(runs):
    """Programs whose coordinators are killed."""
    served = runs[-1]["served_again_ms"]
    return section(
        "takeover",
        runs,
        "Half of the programs' memory fits the arena. The coordinator is killed every few seconds, its keeper starts the next one, "
        "and all programs go on; steps in milliseconds, of all and of those that a kill and the wait for the next coordinator fell "
        "into. `pair` is a process and its child that share memory by an IPC handle. "
        "In the last run the next one answered after "
        f"{figure(served['p50_ms'])} ms (P50; most {figure(served['max_ms'])}).",
        takeover_table(runs, "kill"),
    )


def strikes_section(runs):
    """Strikes at fault points, by the state of the GPU and its programs."""
    lines = []
    for run in runs:
        cells = [struck for victims in run["cells"].values() for struck in victims.values()]
        lines.append(
            [run["state"], len(run["cells"]), len(cells)]
            + [sum(struck >= least for struck in cells) for least in (1, 5)]
            + [f"{run['strikes']:,}"]
            + [f"{run[who]['went_on']:,} of {run[who]['all']:,}" for who in ("survivors", "partly_evicted")]
        )
    header = ["state", "points", "cells", "struck", "five times", "strikes", "survivors that went on", "partly evicted ones"]
    versions = ", ".join(sorted({version for run in runs for version in run["versions"]}))
    return section(
        "strikes",
        runs,
        "On the simulated driver. A cell is a point in the coordinator, its keeper or a program, a state, and what happens there: "
        "the coordinator, the keeper or a program dies, or the process at the point stops or waits for 80 ms. A survivor is a program "
        f"that lives at a strike and is not hit; it goes on if it computes what it computes alone. Versions: {versions}.",
        table.markdown(header, lines),
    )


def keeper_section(runs):
    """Coordinators with a keeper and without."""
    run = runs[-1]
    held = run["pairs"][-1]["keeper"]["held"]
    return section(
        "keeper",
        runs,
        "Coordinators with a keeper and without, in turn; medians in milliseconds, and the ratios of the pairs. With all frames the "
        f"keeper has {held['descriptors']:,} descriptors and {held['resident_kib'] / 1024:.1f} MiB of memory.",
        table.markdown(keeper.HEADER, list(keeper.rows(run))),
    )


def llm_section(runs):
    """LLM servers whose memory does not fit together, asked in turn."""
    parts = []
    for run in runs:
        mode = ", with CUDA graphs" if run["graphs"] else ", eager" if run["engine"] == "vllm" else ""
        prompts = max((len(one["answers"]) for one in run.get("alone", {}).values()), default=0)
        said = f"{prompts} prompts, {run.get('tokens', 64)} tokens each, after {run['rest_s']:g} s of rest"
        parts.append(f"**{run['engine']}{mode}**, {run['share']:g} of the GPU each; {said}:")
        parts.append(table.markdown(serving_llms.HEADER, serving_llms.rows(run)))
        if "beside" in run:
            parts.append(table.markdown(serving_llms.BESIDE_HEADER, serving_llms.beside_rows(run)))
        parts += [f"Bare, together: {name} {came}." for name, came in run.get("together", {}).items()]
    return section(
        "llm",
        runs,
        "Servers over HTTP, made weights; each server is asked after a rest in which nobody is, while another "
        "one has the GPU. `limit`: the first "
        "token of the bare server, and all weights over the bus at the speed of a copy from pinned "
        "memory. `GB in` and `GB out`: medians of a switch. `equal`: token for token as bare.",
        "\n\n".join([*parts, *embedded("llm", runs)]),
    )


def hostile_section(runs):
    """The owner's programs' losses to a guest."""
    lines = []
    for run in runs:
        where = "simulated driver" if run["driver"] == "sim" else "GPU"
        for row in hostility.rows_shown(run):
            lines.append([GUESTS.get(row[0], row[0]), *row[1:]])
        lines[-len(run["rows"])][0] += f" ({where})"
    run = runs[-1]
    return section(
        "hostile",
        runs,
        f"A server of class latency ({run['rate']:g} requests a second, at random) and a training "
        "of class normal, beside a guest. `P99 - without`: against the same without a guest just "
        "before and after; median and quartiles of the rounds. One that has the GPU in turns "
        "leaves the training its share: that counts against the guest that only trains, all else "
        f"against the training alone. Limits: {run['limit_ms']:g} ms, and {run['limit_share']:g} of "
        "the speed.",
        table.markdown(["the guest", *hostility.HEADER[1:]], lines),
    )


def several_gpus_section(runs):
    """Programs on two GPUs, of which one or both are shared."""
    lines = []
    for run in runs:
        for job, found in run["several_gpus"].items():
            if not isinstance(found, dict):
                continue
            bare = found["bare"]
            lines.append([job, "none", "", figure(bare["seconds"], 1), "", "", ""])
            for gpus, one in found.items():
                if gpus == "bare":
                    continue
                equal = "equal" if one.get("digest") == bare["digest"] else "DIFFERENT"
                mib, out = (
                    [count >> 20 for count in one.get(what, {}).values()]
                    for what in ("immovable_bytes", "bytes_out")
                )
                counts = (mib, one.get("switches", {}).values(), out)
                said = (", ".join(map(str, numbers)) for numbers in counts)
                lines.append([job, gpus, equal, figure(one.get("seconds"), 1), *said])
    header = ["program", "coordinators for GPU", "outputs", "seconds", "immovable MiB", "switches", "MiB out"]
    return section(
        "several_gpus",
        runs,
        "Each bare, and with another program on each of the GPUs that have a coordinator, while the program's memory is sent to "
        "the host again and again.",
        table.markdown(header, lines),
    )


def timeouts_section(runs):
    """Programs that are kept off the GPU for less and for more than their time-outs."""
    lines = [
        [
            {"torch": "PyTorch, NCCL", "jax": "JAX"}[case["program"]],
            case["limit_seconds"],
            ", ".join(case["settings"].values()) or "–",
            f"{case['how']} for {case['seconds']} s",
            ("right" if case["equal"] else "WRONG") if case["survives"] else case["ended"],
        ]
        for run in runs
        for case in run["cases"]
    ]
    header = ["program", "time-out, s", "heartbeat, s", "kept off", "result"]
    return section(
        "timeouts",
        runs,
        "Each computes on one GPU, a collective after each step, and is kept off it in the middle of a step: `baton suspend`, or SIGSTOP without "
        "Baton. The time of the clock counts.",
        table.markdown(header, lines),
    )


def weights_section(runs):
    """A daemon's weights and their readers, and tensors that two processes pass to each other."""
    kept, traded = runs[-1]["keep"], runs[-1]["trade"]
    right = {True: "right", False: "WRONG"}
    rows = [
        ("one reader, bare", [kept["one_bare"]]),
        ("one reader", [kept["one"]]),
        ("two readers", kept["two"]),
        ("passed tensors, bare", [traded["bare"]]),
        (f"passed tensors, evicted {traded['status']['evictions']} times", [traded["baton"]]),
    ]
    lines = [
        [name, ", ".join(str(one["rounds"]) for one in found), right[all(one["wrong"] == 0 for one in found)]]
        for name, found in rows
    ]
    status = kept["status"]
    return section(
        "weights",
        runs,
        f"A daemon keeps {kept['weights_gib']} GiB of weights, which each reader has beside {kept['own_gib']} GiB of its own, and checks, all of "
        f"it in each round, for {kept['seconds']:g} s. Bare, the second reader finds no memory. Under Baton the weights are there once: "
        f"{status['switches']} switches moved {status['bytes_in'] / 1e9:.0f} GB in and {status['bytes_out'] / 1e9:.0f} GB out. The tensors are of "
        "PyTorch's expandable segments, in two processes.",
        table.markdown(["programs", "rounds", "checks"], lines),
    )


def sharing_section(runs):
    """Programs at once against the same programs alone."""
    lines = []
    for group in runs[-1]["groups"]:
        lines.append(
            [
                ", ".join(name_of(row["name"]) for row in group["rows"]),
                f"{group['sum_of_peaks'] / 2**30:.1f} in {group['arena_bytes'] / 2**30:.1f}",
                "equal" if group["equal"] else "DIFFERS",
                figure(group["solo_seconds"], 1),
                figure(group["wall_seconds"], 1),
                group["switches"],
                figure(group["switch_ms_p50"], 0),
            ]
        )
    header = ["programs at once", "GiB", "outputs", "alone s", "shared s", "switches", "P50 ms"]
    return section(
        "sharing",
        runs,
        "Same work, one after the other and then all at once, in turns of 100 ms; each turn moves "
        "gigabytes, which is what the difference is.",
        table.markdown(header, lines),
    )


def allocators_section(runs):
    """Programs that hold memory in different ways, at once."""
    lines = []
    for row in (row for run in runs for row in run["groups"]):
        lines.append(
            [
                row["programs"].replace("+", ", "),
                "right" if row["right"] else "WRONG",
                row["switches"],
                *(figure(row[way] / 1e9, 1) for way in ("bytes_in", "bytes_out")),
                figure(row["unmanaged_bytes"] / 1e9),
                "–" if hidden(row) is None else f"{hidden(row):.1%}",
            ]
        )
    header = ["programs, GiB of each", "contents", "switches", "GB in", "GB out", "unmanaged GB"]
    header.append("in no line")
    return section(
        "allocators",
        runs,
        "Each program gets so much memory by its library's allocator, writes all of it, and checks "
        "every word round after round, while the others do the same. `torch segments`: PyTorch with "
        "`expandable_segments:True`. JAX takes three quarters of what it is told is free in one piece. "
        "The last column is what the driver says is used and no line of the ledger has, at the worst "
        "of five moments, as far as programs had memory then.",
        table.markdown(header, lines),
    )


def zoo_section(runs):
    """Programs of many kinds under random eviction."""
    rows = [row for run in runs for row in run["rows"]]
    rows.sort(key=lambda row: (row["framework"], row["name"]))
    judged = [row for row in rows if "steps" in row]
    counted = ", ".join(f"{count} {word}" for word, count in zooing.summary(rows).items())
    total = {
        field: sum(row[field] for row in judged) for field in ("evictions", "switches", "bytes_in")
    }
    lines = []
    for row in rows:
        line = [row["name"], row["framework"], row["verdict"]]
        if "steps" in row:
            line += [row["evictions"], row["switches"], figure(row["bytes_in"] / 1e9, 1)]
            line += [figure(row[size] / 2**30) for size in ("peak_bytes", "unmanaged_bytes")]
        lines.append(line + ["–"] * (8 - len(line)))
    lines.append(
        [
            "all",
            "",
            counted,
            total["evictions"],
            total["switches"],
            figure(total["bytes_in"] / 1e9, 1),
            "",
            "",
        ]
    )
    notes = [
        f"`{row['name']}`: {said_of(row)}" for row in rows if row["verdict"] != "equal"
    ]
    header = ["program", "framework", "outputs", "evictions", "switches", "GB in"]
    header += ["GiB at most", "unmanaged GiB"]
    every = between([run["every_ms"] for run in runs], 0)
    at_once = between([run["at_once"] for run in runs], 0)
    return section(
        "zoo",
        runs,
        f"Compatibility: {len(rows)} programs under random eviction, {counted}. Each runs with "
        f"others, {at_once} at once, and is evicted at random times, every {every} ms on average. "
        "`equal`: the outputs are those of two bare runs, bit for bit. `close`: two bare runs "
        "differ, or may, and these outputs differ as little. `broken bare`: the program does not "
        "run without Baton.",
        table.markdown(header, lines),
        "\n".join(f"- {note}" for note in notes),
    )


def said_of(row):
    """Why a program of the zoo is not equal, in a line."""
    if row["verdict"] == "close":
        return f"two bare runs differ by {row['bare_distance']:.1g}"
    last = (row["why"].strip().splitlines() or [""])[-1]
    return f"{row['limit']} ({last})" if row["limit"] else f"{row['verdict']}: {last}"


def transfer_section(runs):
    """How fast tenants' memory is moved."""
    result = runs[-1]
    torch, lines = result["torch"].get("gbps", {}), []
    for case in result["cases"]:
        for way in case["ways"]:
            both = way["direction"] == "both"
            yardstick = torch.get(f"both_{way['rate']}" if both else way["rate"])
            share = way["gbps"] / yardstick if way["gbps"] and yardstick else None
            text = f"{figure(way['gbps'], 1)} ({figure(share)})"
            if way["rate"] == "out":
                lines.append([case["name"], text, "–"])
            else:
                lines[-1][2] = text
    return section(
        "transfer",
        runs,
        "GB/s, and beside it the ratio to PyTorch's copies through one pinned buffer.",
        table.markdown(["", "out", "in"], lines),
    )


def cost_section(runs):
    """The paired ratios of time per step."""
    lines = []
    for run in runs:
        for name, evaluated in run["workloads"].items():
            found = evaluated["ratios"]
            lines.append(
                [
                    name_of(name),
                    BESIDE[run.get("beside")] if run.get("serve") else "preloaded",
                    *(
                        f"{found[pair]['median']:.4f}"
                        for pair in (
                            "preloaded / bare A",
                            "preloaded / bare B",
                            "bare B / bare A",
                        )
                    ),
                ]
            )
    header = ["workload", "under Baton", "/ bare A", "/ bare B", "bare B / bare A (noise)"]
    return section(
        "cost",
        runs,
        "Time per step, as a ratio to two bare processes alive at the same time.",
        table.markdown(header, lines),
    )


def hook_section(runs):
    """Nanoseconds that a hook adds to a call of the simulated driver."""
    said = ", ".join(
        f"`{one['call']}` ({one['path']}) {one['added_ns']:.1f} ns" for one in runs[-1]["figures"]
    )
    return section("hook_cost", runs, f"Added to a call of the simulated driver: {said}.")


def watched_section(runs):
    """The cost of viewers to programs."""

    def said(one):
        ratios = one["ratios"]
        watched, again = (ratios[way] for way in ("watched", "unwatched again"))
        spread = f"{figure(watched['first_quartile'])} to {figure(watched['third_quartile'])}"
        return (
            f"{figure(watched['median'])} × ({spread}; without anybody again "
            f"{figure(again['median'])} ×, {len(one['rounds'])} rounds)"
        )

    # The newest of each part.
    parts = {name: one for run in runs for name, one in run["parts"].items()}
    shown = [f"{WATCHED.get(name, f'`{name}`')}: {said(one)}" for name, one in parts.items()]
    return section(
        "watched",
        runs,
        "What programs notice of `baton top`, the page and a scrape of the metrics each second, on the "
        "simulated driver: how long things take, and what is added to a call, against nobody "
        f"looking. {'. '.join(shown)}.",
    )


def conformance_section(runs):
    """Bare against preloaded, program by program."""
    rows = runs[-1]["rows"]
    equal = [row["name"] for row in rows if row["equal"]]
    others = [f"{row['name']} ({row['verdict']})" for row in rows if not row["equal"]]
    said = f"{len(equal)} of {len(rows)} programs give the same output, bit for bit"
    if others:
        said += f"; not: {', '.join(others)}"
    return section(
        "conformance",
        runs,
        f"{said}. Equal: {', '.join(equal)}.",
    )


def generated_section(runs):
    """Programs by chance, which are evicted while they rest."""
    counts = collections.Counter(runs[-1]["counts"])

    def of(verdict):
        return sum(counts[f"{kind} {verdict}"] for kind in ("programs", "exchanges"))

    return section(
        "generated",
        runs,
        f"And programs that are drawn by chance, with pools, captures, contexts and frees in all orders: "
        f"{of('equal')} compute under Baton what they compute bare, evicted {counts['evictions']} times in "
        f"all, and {of('fails')} do not. {of('differs bare')} more do not count: bare they hang, are "
        "refused a call, or differ from one time to the next.",
    )


def trace_section(runs):
    """The shim's counts beside the profiler's and the allocator's."""
    rows = runs[-1]["rows"]
    said = ", ".join(f"{row['shim']} {row['kind']}" for row in rows)
    wrong = [row["kind"] for row in rows if not row["agrees"]]
    verdict = f"differ in {', '.join(wrong)}" if wrong else "agree"
    return section(
        "trace",
        runs,
        f"The shim's counts, the profiler's and the allocator's {verdict}: {said}.",
    )


SECTIONS = {
    "corun": corun_section,
    "switch": switch_section,
    "llm": llm_section,
    "pausing": pausing_section,
    "resting": resting_section,
    "takeover": takeover_section,
    "upgrades": upgrades_section,
    "strikes": strikes_section,
    "keeper": keeper_section,
    "stuck": stuck_section,
    "stopped": stopped_section,
    "hostile": hostile_section,
    "sharing": sharing_section,
    "weights": weights_section,
    "several_gpus": several_gpus_section,
    "timeouts": timeouts_section,
    "allocators": allocators_section,
    "zoo": zoo_section,
    "generated": generated_section,
    "transfer": transfer_section,
    "cost": cost_section,
    "hook_cost": hook_section,
    "watched": watched_section,
    "conformance": conformance_section,
    "trace": trace_section,
}
PICTURES = {
    "switch": lambda runs: pictures.switch(switching.merge(runs)),
    "corun": pictures.corun,
    "llm": pictures.llm,
}


def drawn(kind, runs):
    """{file: (title, SVG)} of a kind; most have none."""
    return PICTURES.get(kind, lambda _: {})(runs)


def embedded(kind, runs):
    """A kind's pictures in the document."""
    return [f"![{title}]({file})" for file, (title, _) in drawn(kind, runs).items()]


# The README's table: what it says, of the runs of a kind; and the command, if it is not the kind's.


def corun_short(runs):
    """Rows about programs that run at the same time."""
    panels, rows = corunning.matrix(runs), []

    def p99(way):
        return [ratio for ratio, _ in panels.get(way, {}).values() if ratio]

    if p99("baton"):
        pairs = p99("baton")
        others = [
            f"{said} {ratios(p99(way))} ×"
            for way, said in (("default", "time slices"), ("mps", "MPS"))
            if p99(way)
        ]
        rows.append(
            [
                f"P99 of requests beside a training, {len(pairs)} pairs of models",
                f"{ratios(pairs)} × alone, median {ratio_text(middle(pairs))}"
                + (f" ({', '.join(others)})" if others else ""),
            ]
        )
        kept = [share for _, share in panels["baton"].values()]
        rows.append(["the training meanwhile", f"{between(kept)} of its speed alone"])
    return rows


def pausing_short(runs):
    """The row about preemption."""
    found = [run for run in runs if not run["queue"] and run.get("gpu") is None]
    if not found:
        return []
    call = found[-1]["pause"]
    text = f"P50 {figure(call['p50_ms'])} ms, P99 {figure(call['p99_ms'])} ms"
    return [["taking the GPU from a running kernel of 100 ms", text]]


def switch_short(runs):
    """Rows about evicted models."""
    rows, found = switching.merge(runs)["rows"], []
    launches = [
        (name_of(row["model"]), row["first_launch"])
        for row in switching.in_order(rows)
        if switching.beside(row) == switching.KERNEL and row["variant"] == "baton"
    ]
    if launches:
        said = "; ".join(
            f"{name} P50 {figure(one['p50_ms'])} ms, P99 {figure(one['p99_ms'])} ms"
            for name, one in launches
        )
        what = "first launch of an evicted model, such a kernel on the GPU"
        found.append([what, said, f"`{command_of('switch')} --beside kernel`"])
    usual = [model for model in switching.models_of(rows) if model not in ENVIRONMENT]
    big = [model for model in usual if switching.of(rows, model, "baton")][-1:]
    for model in big:
        baton = switching.of(rows, model, "baton")
        text = f"{baton['p50_ms']:.1f} ms, {figure(baton['ratio'])} × its transfer over PCIe"
        if other := switching.of(rows, model, "checkpoint"):
            text += f" (checkpoint API {other['suspend_ms'] + other['resume_ms']:.0f} ms)"
        size = f"{baton['tenant_bytes'] / 1e9:.1f} GB"
        found.append([f"an evicted model of {size} answers", text])
    return found


def cost_short(runs):
    """The row about the cost per step."""
    found = [
        evaluated["ratios"][f"preloaded / bare {which}"]["median"]
        for run in runs
        if not run.get("beside")
        for evaluated in run["workloads"].values()
        for which in "AB"
    ]
    return [["time per step, alone on the GPU", f"{between(found, 3)} × without Baton"]]


def sharing_short(runs):
    """The row about programs that do not fit together."""
    group = runs[-1]["groups"][-1]
    said = "the same outputs, bit for bit" if group["equal"] else "OTHER outputs"
    size = f"{group['sum_of_peaks'] / 2**30:.1f} GiB in {group['arena_bytes'] / 2**30:.1f} GiB"
    return [[f"{len(group['rows'])} programs in turns, {size}", said]]


def llm_short(runs):
    """A row about LLM servers: the runs' medians after a switch, and what their tokens are."""
    after = [row for run in runs for row in serving_llms.rows(run) if row[1] == serving_llms.KINDS["switch"]]
    times = {}
    for row in after:
        # Of several servers of a model each has a number.
        times.setdefault(row[0].partition("-")[0], []).append(float(row[3]))
    said = ", ".join(f"{name} {between(values, 0)} ms" for name, values in times.items())
    same = all(row[-1].split(" of ")[0] == str(row[2]) for row in after)
    said += ", token for token as bare" if same else ", and answers that DIFFER"
    shares = between([run["share"] for run in runs if "baton" in run], 1)
    what = f"first token of vLLM servers with {shares} of the GPU each, after a switch"
    return [[what, said]]


SHORT = {
    "corun": corun_short,
    "pausing": pausing_short,
    "switch": switch_short,
    "llm": llm_short,
    "sharing": sharing_short,
    "cost": cost_short,
}


def in_short(results):
    """The table that the README repeats, or nothing."""
    lines = [
        [*row, f"`{command_of(kind)}`"][:3]
        for kind, rows_of in SHORT.items()
        if kind in results
        for row in rows_of(results[kind])
    ]
    return table.markdown(["what", "measured", "with"], lines) if lines else ""


def document(results):
    """The whole document, of {kind: runs}; sections in the order of SECTIONS."""
    kinds = [kind for kind in SECTIONS if kind in results]
    machines = {
        origin(run["machine"]): 0 for kind in kinds for run in results[kind] if "machine" in run
    }
    head = [
        "# Results",
        "Made by `python3 bench/report.py` from [bench/results](../bench/results), where every run "
        "has its machine, its versions, its command and all its figures; "
        "[bench/README.md](../bench/README.md) says what is measured, and how to measure again.",
        *(f"{where}." for where in machines),
        in_short(results),
    ]
    parts = [part for part in head if part]
    return "\n\n".join([*parts, *(SECTIONS[kind](results[kind]) for kind in kinds)]) + "\n"


def collected(results):
    """{kind: runs that count} of result files."""
    found = {}
    for result in results:
        found.setdefault(result.get("kind"), []).extend(current.runs_of(result))
    return {kind: current.pruned(kind, runs) for kind, runs in found.items() if kind in SECTIONS}


def read(folder):
    """{kind: runs} of the files in a folder."""
    return collected(json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))


def add(folder, paths):
    """Takes new results into the folder's files."""
    for path in paths:
        new = json.loads(path.read_text())
        if new.get("kind") not in SECTIONS:
            sys.exit(f"report: {path} is no result")
        kept = folder / f"{new['kind']}.json"
        old = [json.loads(kept.read_text())] if kept.exists() else []
        machine.write_json(kept, current.joined(new["kind"], [*old, new]))


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--out", type=pathlib.Path, default=DOCUMENT)
    parser.add_argument("--add", type=pathlib.Path, nargs="+", default=[], metavar="FILE")
    arguments = parser.parse_args()
    add(arguments.results, arguments.add)
    results = read(arguments.results)
    if not results:
        sys.exit(f"report: no results in {arguments.results}")
    arguments.out.write_text(document(results))
    for kind, runs in results.items():
        for file, (_, svg) in drawn(kind, runs).items():
            arguments.out.with_name(file).write_text(svg)


if __name__ == "__main__":
    main()
