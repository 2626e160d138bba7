#!/usr/bin/env python3
"""Makes docs/results.md from the result files in bench/results.

    python3 bench/report.py --out docs/results.md

Every table says which machine, driver and versions it comes from, and the command that made it.
Pictures of the same figures go beside the document.
"""

import argparse
import json
import pathlib
import sys

import conformance
import cost
import pictures
import sharing
import stuck
import trace_check
import transfer
from common import corunning, switching, table

HERE = pathlib.Path(__file__).resolve().parent

INTRODUCTION = """# Results

Made by `bench/report.py` from the files in `bench/results`; `bench/README.md` says how to measure
again."""


def origin(machine):
    """Where a result comes from, as two lines of Markdown."""
    gpus = "; ".join(
        f"{gpu['name']}, {gpu['memory.total']}, driver {gpu['driver_version']}"
        for gpu in machine["gpus"]
    )
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"{gpus or 'No GPU'}; {machine['cores']} cores of {machine['cpu']}; "
        f"Python {machine['python']}; {packages or 'no packages'}; {machine['date']}.\n\n"
        f"    {machine['command']}"
    )


def conformance_section(result):
    """Bare against preloaded, program by program."""
    rows = result["rows"]
    equal = sum(row["equal"] for row in rows)
    absent = sum(row["verdict"] == "not installed" for row in rows)
    said = f"{equal} of {len(rows)} programs give the same output, bit for bit"
    if absent:
        said += f"; {absent} not installed"
    reasons = [
        f"- {row['name']}, {label}: {run['reason'].strip().splitlines()[-1]}"
        for row in rows
        for label, run in row["runs"].items()
        if run.get("reason")
    ]
    return "\n\n".join(
        [
            "## Programs compute the same under the shim",
            f"{said}. Every program ran bare twice first. Calls are what the shim counted in a run "
            "of its own. Times are of one run beside others: they show that nothing is badly off, "
            "the next sections measure.",
            table.markdown(conformance.HEADER, [conformance.shown(row) for row in rows]),
            *(["What did not run:\n\n" + "\n".join(reasons)] if reasons else []),
            origin(result["machine"]),
        ]
    )


def trace_section(result):
    """The shim's counts beside the profiler's and the allocator's."""
    return "\n\n".join(
        [
            "## The shim's counts against the profiler's",
            f"{result['steps']} steps of ResNet-152 training and inference and BERT inference in "
            "one process. The shim's sums, CUPTI's device records, CUPTI's API calls, and "
            "PyTorch's own count of its allocations.",
            table.markdown(trace_check.HEADER, [trace_check.shown(row) for row in result["rows"]]),
            origin(result["machine"]),
        ]
    )


def cost_section(result):
    """The paired ratios of time per step."""
    rows = []
    for name, evaluated in result["workloads"].items():
        rows += cost.shown(name, evaluated)
    times = [
        f"- {name}: "
        + ", ".join(
            f"{role} {one['median']:.3f} ms"
            for role, one in evaluated["milliseconds_per_step"].items()
        )
        for name, evaluated in result["workloads"].items()
    ]
    failures = [f"- {name} failed: {why}" for name, why in result["failures"].items()]
    title, who = "## What the shim costs", []
    if result.get("serve"):
        title = "## What a tenant pays that has the GPU to itself"
        who = [
            "The preloaded process is the only tenant of a `baton serve`: it holds the baton, and "
            "all its memory is virtual and resident. The bare ones are outside Baton."
        ]
    return "\n\n".join(
        [
            title,
            *who,
            "Ratios of time per step, paired within rounds; blocks of "
            f"{result['block_seconds']} s by a token among three processes alive together. "
            "`bare B / bare A` is the noise floor.",
            *([result["note"]] if "note" in result else []),
            table.markdown(cost.HEADER, rows),
            "\n".join(["Median time per step:", "", *times, *failures]),
            origin(result["machine"]),
        ]
    )


def hook_section(result):
    """Nanoseconds that a door adds to a call of the simulated driver."""
    header = ["call", "path", "bare ns", "added ns", "added ns, 90th percentile"]
    rows = [
        [figure["call"], figure["path"]]
        + [f"{figure[field]:.2f}" for field in ("bare_ns", "added_ns", "added_ns_p90")]
        for figure in result["figures"]
    ]
    return "\n\n".join(
        [
            "## What the shim adds to one call",
            "The same call to the simulated driver's function and through the shim's door to it, "
            f"in turn, in {result['blocks']} blocks of {result['calls_a_block']} calls; medians of "
            "the differences within pairs. Hooked calls pass the gate, forwarded ones do not.",
            table.markdown(header, rows),
            f"{result['cpu']}.\n\n    {result['command']}",
        ]
    )


def sharing_section(result):
    """Programs at once against the same programs alone."""
    rows = [row for group in result["groups"] for row in sharing.shown(group)]
    repeated = [
        f"- {name}: {record['steps']} steps, two runs "
        f"{'equal' if record['equal'] else 'DIFFER'}; {json.dumps(record['numbers'])}"
        for name, record in result["alone"].items()
    ]
    notes = [
        f"{len(group['names'])} at once: {group['large_switches']} of the last "
        f"{group['listed_switches']} switches moved at least half the arena; "
        f"left over at the end: {sum(group['left_over'].values()) or 'nothing'}."
        for group in result["groups"]
    ]
    recovery = result.get("recovery")
    return "\n\n".join(
        [
            "## Programs that do not fit together take turns",
            "Each program ran bare and alone twice; then all of a group at once, as tenants of a "
            "`baton serve` whose arena is smaller than their sum. Outputs of every step are "
            "compared with the bare run's, bit for bit. Times are those of the steps, without "
            "start-up; for the whole, alone is the sum and shared the time until the last was "
            "done.",
            table.markdown(sharing.HEADER, rows),
            "\n".join(["Alone:", "", *repeated]),
            *notes,
            *([sharing.recovery_line(recovery) + "."] if recovery else []),
            *(f"Failed: {why}" for why in result["failures"]),
            origin(result["machine"]),
        ]
    )


def transfer_section(result):
    """How fast tenants' memory is moved."""
    torch = result["torch"].get("gbps", {})
    rows = [row for one in result["cases"] for row in transfer.shown(one, torch)]
    scrubbing = [
        f"- {one['name']}: freed memory scrubbed at {one['scrub_gbps']:.0f} GB/s, "
        f"{one['extents']} extents"
        for one in result["cases"]
        if one["scrub_gbps"]
    ]
    failures = [f"- {name} failed: {why}" for name, why in result["failures"].items()]
    return "\n\n".join(
        [
            "## How fast memory is moved",
            "One tenant evicted (another allocates all of the arena) and restored, and two tenants "
            "exchanged in an arena with room for one. First copy submitted to last completed, as "
            "the coordinator reports it; medians, beside them the least. torch: copies through "
            "one pinned buffer of 1 GiB each way, in the same run.",
            table.markdown(transfer.HEADER, rows),
            *(["\n".join([*scrubbing, *failures])] if scrubbing or failures else []),
            *([f"No copies by torch: {result['torch']['reason']}"] if not torch else []),
            origin(result["machine"]),
        ]
    )


def corun_section(result):
    """Requests beside a training, each against itself alone."""
    return "\n\n".join(
        [
            "## Requests beside a training",
            "Requests arrive at random while another model trains. Ratios are to the same alone in "
            "the same run, before and after; `training` is its speed as a share of its speed "
            "alone. `baton`: all fit the GPU together, class latency and class batch. `exclusive`: "
            "they take turns all the same. `no pausing`: launches are held back, nothing is taken "
            "off the GPU midway. Without Baton, `default`: the driver's own time slices; `mps`: "
            "NVIDIA's MPS; `mps priority`: and the training has the lower priority.",
            *embedded(result),
            *(corun_run(run) for run in corunning.dated(result["runs"])),
        ]
    )


def corun_run(run):
    """One run's table."""
    graphs = [name for name, graph in run.get("graphs", {}).items() if graph]
    quiet = [
        f"{name} {corunning.figure(corunning.noise(run, name))}"
        for name in dict.fromkeys(cell["served"] for cell in run["cells"] if cell["served"])
        if corunning.noise(run, name)
    ]
    return "\n\n".join(
        [
            f"Requests at {run['load']:g} of what the model could answer alone:",
            table.markdown(corunning.HEADER, corunning.rows(run)),
            f"CUDA graphs: {', '.join(graphs) or 'none'}. P99 alone against itself (noise): "
            f"{', '.join(quiet) or 'not measured'}.",
            *(f"Not measured: {failure}" for failure in run["failures"]),
            origin(run["machine"]),
        ]
    )


def pausing_section(result):
    """How long pausing takes."""
    names = {
        "pause": "the driver's call",
        "granted": "demand to the open gate",
        "first_kernel": "request to the end of its first kernel, memory moved",
        "small_kernel": "a small kernel beside a paused program",
        "small_kernel_alone": "the same, nothing else on the GPU",
    }
    rows = [
        [text, value["n"], *(corunning.figure(value[q], 3) for q in ("p50_ms", "p99_ms", "max_ms"))]
        for name, text in names.items()
        if (value := result[name])
    ]
    products, queue = result["products"], result.get("queue")
    what = "about 1 ms, a full queue of them," if queue else "about 100 ms that fill the GPU"
    if result.get("gpu") is not None:
        what += f", on GPU {result['gpu']} and in turn with some on the other GPUs,"
    return "\n\n".join(
        [
            "## Taking a program off the GPU in the middle of a kernel",
            f"{products['products']} kernels of {what} were interrupted "
            f"{result['pauses']} times, part of their memory moved to the host and back each time "
            f"({result['bytes_in'] / 1e9:.0f} GB in all); {products['wrong']} wrong results.",
            table.markdown(["", "n", "P50 ms", "P99 ms", "most ms"], rows),
            origin(result["machine"]),
        ]
    )


def stuck_section(result):
    """What others lose to tenants that are stuck."""
    turns = stuck.turns_rows(result)
    wrong = stuck.shortcomings(result)
    return "\n\n".join(
        [
            "## Beside a kernel that does not end, and a stopped program",
            "Small requests of class latency, with gaps of "
            f"{result['gap_ms']:g} ms: alone, beside a program of class "
            f"{result.get('class', 'batch')} whose kernel fills the GPU and does not end, and "
            f"beside one that is stopped (SIGSTOP) at work, {result['stops']} times. What "
            "they take longer than alone has a limit, for P99. `its speed`: how much "
            "of the endless kernel is done in a second, against the same without requests. "
            "`default`: programs that fit run together; `exclusive`: they take turns, and among "
            "those of one class each waits for the end of another's (`--quantum`). All fits.",
            table.markdown(stuck.HEADER, stuck.rows(result)),
            *(
                [
                    "Kernels a second of a third program, of the same class as the two:",
                    table.markdown(stuck.TURNS_HEADER, turns),
                ]
                if turns
                else []
            ),
            "\n".join(f"- {note}" for note in [*stuck.notes(result), *wrong]),
            origin(result["machine"]),
        ]
    )


PICTURES = {"switch": pictures.switch, "corun": pictures.corun}


def drawn(result):
    """{file: (title, SVG)} of a result; most kinds have none."""
    return PICTURES.get(result["kind"], lambda _: {})(result)


def embedded(result):
    """A result's pictures in the document."""
    return [f"![{title}]({file})" for file, (title, _) in drawn(result).items()]


def switch_section(result):
    """How soon an evicted model answers, and what that costs the training that it interrupts."""
    rows = result["rows"]
    tables = [
        (switching.HEADER, [switching.shown(row) for row in switching.listed(rows)]),
        (switching.KERNEL_HEADER, switching.kernel_shown(rows)),
        (switching.COST_HEADER, switching.cost_shown(rows)),
        (switching.TRAINING_HEADER, [switching.training_shown(r) for r in result["training"]]),
        (switching.EQUALITY_HEADER, [switching.equality_shown(r) for r in result["equality"]]),
    ]
    said = [
        "A training of ResNet-152 has the GPU and fills the arena. A server's memory is evicted, "
        "and it gets a request: from the input on the host to the outputs on the host, as the "
        "server measures it. `ready`: the same server, resident, the GPU idle. Transfer is the "
        "model's bytes over the bandwidth of PyTorch's copies through one pinned buffer; the ratio "
        "is to the larger of the two. `left` is what of the server was copied to the host when it "
        "left afterwards. The times at the right count from the moment it wanted the GPU.",
        "The same with a program in the training's place that runs kernels of about 100 ms, each "
        "of which fills the GPU: from the moment that the server wanted the GPU to its first "
        "launch, as far as the coordinator knows it (`launches`), and the whole request. `midway`: "
        "how often work was taken off the GPU before its end. The limit is for P99 of the first "
        "launch. The other program compares all that it computes.",
        "Against what there is without Baton: suspending the server and resuming it by the "
        "driver's checkpoint API, and a new process from its start to its first result, each with "
        "the GPU to itself.",
        "The training's speed with a request to an evicted server every so often. The last "
        "columns: the share of time that the training had the GPU, and its speed in that time.",
        "Evicted before every request, memory overwritten meanwhile, against two bare runs.",
    ]
    parts = ["## How soon a model answers that was evicted"]
    parts += embedded(result)
    for text, (header, lines) in zip(said, tables):
        if lines:
            parts += [text, table.markdown(header, lines)]
    wrong = switching.shortcomings(result)
    if wrong:
        parts.append("\n".join(["Not as it should be:", "", *(f"- {one}" for one in wrong)]))
    commands = dict.fromkeys(machine["command"] for machine in result["origins"][:-1])
    parts.append("\n".join([origin(result["origins"][-1]), *(f"    {one}" for one in commands)]))
    return "\n\n".join(parts)


SECTIONS = {
    "conformance": conformance_section,
    "trace": trace_section,
    "hook_cost": hook_section,
    "cost": cost_section,
    "sharing": sharing_section,
    "transfer": transfer_section,
    "switch": switch_section,
    "pausing": pausing_section,
    "stuck": stuck_section,
    "corun": corun_section,
}


def merged(results):
    """All files of switching as one result, and all of co-running; the others as they are."""
    kinds = {kind: [r for r in results if r["kind"] == kind] for kind in ("switch", "corun")}
    found = [result for result in results if result["kind"] not in kinds]
    if kinds["switch"]:
        found.append(switching.merge(kinds["switch"]))
    if kinds["corun"]:
        found.append({"kind": "corun", "runs": kinds["corun"]})
    return found


def document(results):
    """The whole document; sections in the order of SECTIONS."""
    ordered = sorted(results, key=lambda result: list(SECTIONS).index(result["kind"]))
    return "\n\n".join([INTRODUCTION, *(SECTIONS[r["kind"]](r) for r in ordered)]) + "\n"


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--out", type=pathlib.Path, help="instead of standard output")
    arguments = parser.parse_args()
    files = sorted(arguments.results.glob("*.json"))
    results = [json.loads(path.read_text()) for path in files]
    results = [result for result in results if result.get("kind") in SECTIONS]
    if not results:
        sys.exit(f"report: no results in {arguments.results}")
    results = merged(results)
    text = document(results)
    if arguments.out:
        arguments.out.write_text(text)
        for result in results:
            for file, (_, svg) in drawn(result).items():
                arguments.out.with_name(file).write_text(svg)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
