#!/usr/bin/env python3
"""Shows that programs whose memory exceeds the GPU compute the same when they take turns with it.

    python3 bench/sharing.py --baton target/release --out sharing.json

Every workload runs bare and alone twice, the first time for --seconds, which says how many steps
are run ever after; the two must agree before anything else is said. Then each group of workloads
runs at once under one `baton serve`, whose arena is larger than the largest of them and smaller
than all together, for as many steps; what every step computed is compared with the bare runs. Last,
a program asks for more memory than the arena and has to recover from the answer.

The exit status is 0 if all is equal, there were enough switches, and the last one recovered.
"""

import argparse
import contextlib
import json
import pathlib
import sys
import tempfile
import time

from common import machine, programs, switches, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator, parse_bytes
from common.workers import WorkerFailed, together
from loads import SHARED

HERE = pathlib.Path(__file__).resolve().parent
GROUPS = ["resnet152_train+bert_infer", "resnet152_train+bert_infer+llama_1b"]
MIB = 1 << 20
# Beside what PyTorch counts: cuBLAS and others allocate a little themselves, and extents are round.
ROOM = 256 * MIB


def worker_argv(workload, arguments):
    """The command line of a worker."""
    script = str(HERE / "sharing_worker.py")
    argv = [sys.executable, script, workload, "--device", arguments.device]
    return [*argv, "--size", arguments.size, "--watch", Install.of(arguments.baton).shim.name]


def run_together(plan, commands, folder, shim, preloaded, timeout, at_end=lambda: None):
    """Starts the workers of `plan`, and once all are ready tells each its command.

    Gives (answers by name, seconds until the last was done, what `at_end` says before they end).
    """
    with together(plan, folder) as workers:
        for name, worker in workers.items():
            loaded = shim in worker.answer(timeout)["libraries"]
            if loaded != preloaded:
                raise WorkerFailed(f"{name} {'has' if loaded else 'has not'} loaded {shim}")
        started = time.monotonic()
        for name, worker in workers.items():
            worker.send(commands[name])
        answers = {name: worker.answer(timeout) for name, worker in workers.items()}
        return answers, time.monotonic() - started, at_end()


def run_bare(names, commands, arguments, driver):
    """Answers of bare workers, all at once; one name for a measurement of time."""
    with tempfile.TemporaryDirectory(prefix="bare-") as folder:
        settings = {**programs.private_caches(folder), **driver.bare(folder)}
        plan = {name: (worker_argv(name, arguments), settings) for name in names}
        shim = driver.install.shim.name
        return run_together(plan, commands, folder, shim, False, arguments.timeout)[0]


def solo(names, arguments, driver):
    """{name: record} of two bare runs each: the first alone, the second beside the others."""
    first = {}
    for name in names:
        command = {name: f"seconds {arguments.seconds}"}
        first[name] = run_bare([name], command, arguments, driver)[name]
        told(f"{name}: {first[name]['steps']} steps in {first[name]['seconds']:.1f} s, bare")
    again = {}
    # Beside each other only as far as the GPU has room for all of them.
    for batch in [names] if arguments.at_once else [[name] for name in names]:
        commands = {name: f"steps {first[name]['steps']}" for name in batch}
        again.update(run_bare(batch, commands, arguments, driver))
    records = {}
    for name in names:
        records[name] = {**first[name], "equal": first[name]["digest"] == again[name]["digest"]}
        told(f"{name}: bare again {'equal' if records[name]['equal'] else 'DIFFERS'}")
    return records


def arena_for(peaks):
    """An arena that each of these fits and all together do not; ValueError if there is none."""
    largest, everything = max(peaks), sum(peaks)
    arena = int(largest * 1.1) + min(ROOM, largest // 8)
    if arena >= 0.95 * everything:
        raise ValueError(f"no arena makes {len(peaks)} programs of {peaks} bytes take turns")
    return arena


def first_difference(one, other):
    """Number of the first step after which two runs differ; None if none does."""
    pairs = zip(one["step_digests"], other["step_digests"])
    return next((i for i, (a, b) in enumerate(pairs) if a != b), None)


def compare(names, alone, answers):
    """Rows of the programs of a group: what each computed, against its bare run."""
    rows = []
    for name in names:
        equal = answers[name]["digest"] == alone[name]["digest"]
        rows.append(
            {
                "name": name,
                "steps": answers[name]["steps"],
                "outputs": answers[name]["outputs"],
                "digest": answers[name]["digest"],
                "numbers": answers[name]["numbers"],
                "solo_seconds": alone[name]["seconds"],
                "shared_seconds": answers[name]["seconds"],
                "equal": equal,
                "differs_at_step": None if equal else first_difference(alone[name], answers[name]),
            }
        )
    return rows


def share(names, alone, arguments, driver):
    """The group's result: all of it at once under one coordinator."""
    peaks = [alone[name]["peak_bytes"] for name in names]
    arena = parse_bytes(arguments.arena) if arguments.arena else arena_for(peaks)
    pool = arguments.host_pool or int(1.3 * sum(peaks)) + 2 * ROOM
    poison = ["--poison"] if arguments.poison else []
    serving = Coordinator(driver, arena, pool, arguments.quantum, poison)
    shim = driver.install.shim.name
    with serving, tempfile.TemporaryDirectory(prefix="shared-") as folder:
        settings = {**programs.private_caches(folder), **serving.settings}
        plan = {name: (serving.run(name, worker_argv(name, arguments)), settings) for name in names}
        commands = {name: f"steps {alone[name]['steps']}" for name in names}
        with keeping_log(serving):
            answers, wall, last = run_together(
                plan, commands, folder, shim, True, arguments.timeout, serving.status
            )
        status = settled_status(serving, len(names))
    rows = compare(names, alone, answers)
    tenants = {tenant["name"]: tenant for tenant in last["tenants"]}
    for row in rows:
        for field in ("peak_bytes", "gpu_seconds", "switches"):
            row[field] = tenants[row["name"]][field]
    everything = sum(row["peak_bytes"] for row in rows)
    return {
        "names": names,
        "rows": rows,
        "arena_bytes": status["arena"]["configured_bytes"],
        "sum_of_peaks": everything,
        "wall_seconds": wall,
        "solo_seconds": sum(row["solo_seconds"] for row in rows),
        **figures(status, everything),
        "serve_status": serving.process.returncode,
        "equal": all(row["equal"] for row in rows),
        "crowded": status["arena"]["configured_bytes"] < everything,
        "recent": status["recent"][-64:],
    }


def figures(status, everything):
    """The coordinator's own counts that the result keeps, at the end."""
    kept = {name: status[name] for name in ("switches", "bytes_in", "bytes_out")}
    switch = status["times"]["switch"]
    kept |= {"switch_ms_p50": switch["p50"], "switch_ms_max": switch["max"]}
    arena = status["arena"]["configured_bytes"]
    kept["large_switches"] = switches.moving(status["recent"], 0.5, arena)
    kept["listed_switches"] = len(status["recent"])
    kept["left_over"] = {
        "tenants": len(status["tenants"]),
        "extents": status["extents"],
        "lent_bytes": status["arena"]["lent_bytes"],
        "host_pool_used_bytes": status["host_pool"]["used_bytes"],
    }
    return kept


def settled_status(serving, departed, patience=10):
    """The status once that many tenants have left and nothing of theirs is lent."""
    deadline = time.monotonic() + patience
    while True:
        status = serving.status()
        left = len(status["departed"]) >= departed and not status["tenants"]
        if left and status["arena"]["lent_bytes"] == 0 or time.monotonic() > deadline:
            return status
        time.sleep(0.1)


@contextlib.contextmanager
def keeping_log(serving):
    """Adds the coordinator's last words to a failure of its tenants."""
    try:
        yield
    except WorkerFailed as failure:
        raise WorkerFailed(f"{failure}\nThe coordinator said: {serving.said()}") from None


def recovery(arena, arguments, driver):
    """A program that asks for more than the arena, as a tenant of its own coordinator."""
    way = "torch" if arguments.device == "cuda" and not arguments.driver else "driver"
    chunk = min(64 * MIB, arena // 16 // (2 * MIB) * 2 * MIB)
    with Coordinator(driver, arena, 64 * MIB, arguments.quantum) as serving:
        argv = [sys.executable, str(HERE / "recovery.py"), way, "--chunk", str(chunk)]
        argv = serving.run("recovery", argv)
        outcome = programs.run(argv, serving.settings, arguments.timeout)
    result = {"way": way, "arena_bytes": arena, "status": outcome.status, "recovered": False}
    if outcome.stdout.strip():
        result |= json.loads(outcome.stdout.strip().splitlines()[-1])
    if outcome.status != "ok":
        result["reason"] = machine.scrub(outcome.reason)
    return result


HEADER = [
    "group",
    "program",
    "outputs",
    "steps",
    "peak GiB",
    "alone s",
    "shared s",
    "switches",
    "p50 ms",
    "max ms",
    "in GB",
    "out GB",
]


def verdict(row):
    """`equal`, or where the outputs began to differ; weights may differ at the end alone."""
    if row["equal"]:
        return "equal"
    step = row["differs_at_step"]
    return "DIFFERS at the end" if step is None else f"DIFFERS at step {step}"


def shown(group):
    """Rows of the table for one group: each program, and the whole."""
    label = f"{len(group['names'])} at once"
    rows = [
        [
            label,
            row["name"],
            verdict(row),
            row["steps"],
            f"{row['peak_bytes'] / 2**30:.2f}",
            f"{row['solo_seconds']:.1f}",
            f"{row['shared_seconds']:.1f}",
            row["switches"],
            *[""] * 4,
        ]
        for row in group["rows"]
    ]
    times = [group["switch_ms_p50"], group["switch_ms_max"]]
    whole = [
        label,
        f"all, arena {group['arena_bytes'] / 2**30:.2f} GiB",
        "equal" if group["equal"] else "DIFFERS",
        "",
        f"{group['sum_of_peaks'] / 2**30:.2f}",
        f"{group['solo_seconds']:.1f}",
        f"{group['wall_seconds']:.1f}",
        group["switches"],
        *("-" if ms is None else f"{ms:.1f}" for ms in times),
        f"{group['bytes_in'] / 1e9:.1f}",
        f"{group['bytes_out'] / 1e9:.1f}",
    ]
    return [*rows, whole]


def recovery_line(result):
    """The outcome of the last program, in a sentence."""
    if not result.get("recovered"):
        reason = result.get("reason", result)
        return f"a program that asks for more than the arena did NOT recover: {reason}"
    arena, filled = (result[name] / 2**30 for name in ("arena_bytes", "filled_bytes"))
    return (
        f"a program ({result['way']}) that asks for more than an arena of {arena:.2f} GiB is told "
        f"after {filled:.2f} GiB that the memory is full ({result['said']}), and goes on"
    )


def told(line):
    """Progress."""
    print(line, flush=True)


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("sharing.json"))
    parser.add_argument("--groups", nargs="+", default=GROUPS, metavar="NAME+NAME")
    parser.add_argument("--seconds", type=float, default=25, help="of each program alone")
    parser.add_argument("--switches", type=int, default=50, help="how many a group must have")
    parser.add_argument("--quantum", default="100ms")
    parser.add_argument("--arena", help="for all groups, instead of one chosen for each")
    parser.add_argument("--host-pool", help="instead of one that all of a group fit")
    parser.add_argument("--poison", action="store_true", help="fill what is evicted or freed")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for any one answer")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="full", choices=["full", "small"])
    parser.add_argument("--driver", help="if it is to be another: sim, or a file")
    parser.add_argument("--sim-memory", default="512MiB", help="the simulated GPU's size")
    parser.add_argument("--one-by-one", dest="at_once", action="store_false")
    parser.add_argument("--no-recovery", dest="recovery", action="store_false")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    arguments.groups = [group.split("+") for group in arguments.groups]
    unknown = {name for group in arguments.groups for name in group} - set(SHARED)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    return arguments


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    driver = Driver(Install.of(arguments.baton), arguments.driver, arguments.sim_memory)
    names = list(dict.fromkeys(name for group in arguments.groups for name in group))
    alone, groups, failures, recovered = {}, [], [], None
    try:
        alone = solo(names, arguments, driver)
        for group in arguments.groups:
            told(f"{' + '.join(group)}: at once")
            groups.append(share(group, alone, arguments, driver))
    except (WorkerFailed, NoCoordinator, ValueError) as failure:
        failures.append(str(failure))
    if arguments.recovery:
        arena = groups[0]["arena_bytes"] if groups else 256 * MIB
        try:
            recovered = recovery(arena // (2 * MIB) * 2 * MIB, arguments, driver)
        except NoCoordinator as failure:
            failures.append(str(failure))
    for record in alone.values():
        record.pop("step_digests")
    result = {
        "kind": "sharing",
        "machine": machine.describe(),
        "quantum": arguments.quantum,
        "poison": arguments.poison,
        "wanted_switches": arguments.switches,
        "alone": alone,
        "groups": groups,
        "recovery": recovered,
        "failures": failures,
    }
    machine.write_json(arguments.out, result)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    print(table.text(HEADER, [row for group in groups for row in shown(group)]))
    if recovered:
        print(recovery_line(recovered))
    good = is_good(result)
    print(f"all equal, enough switches, nothing left over: {'yes' if good else 'NO'}")
    sys.exit(0 if good else 1)


def is_good(result):
    """True if the result passes."""
    groups = result["groups"]
    return bool(
        groups
        and not result["failures"]
        and all(record["equal"] for record in result["alone"].values())
        and all(group["equal"] and group["crowded"] for group in groups)
        and all(group["switches"] >= result["wanted_switches"] for group in groups)
        and not any(any(group["left_over"].values()) for group in groups)
        and (result["recovery"] is None or result["recovery"]["recovered"])
    )


if __name__ == "__main__":
    main()
