#!/usr/bin/env python3
"""Measures what libbaton.so costs a program: its time per step, as a ratio to running bare.

    python3 bench/cost.py --baton target/release/libbaton.so --out cost.json

Three processes of one workload live side by side: bare A, bare B and preloaded P. A token goes
round, in a new random order every round, and who holds it runs steps for two seconds while the
others sleep. Ratios are taken within a round, so that slow drifts of the machine cancel: P/A is the
cost, B/A is what the measurement itself is worth. With --sets the rounds are shared out among fresh
sets of three processes, since two processes of one program can differ for as long as they live.

Without --serve the preloaded process has no coordinator. With it, `baton serve` runs beside the
three, P is its only tenant and holds the baton, and its status must show that P's memory is the
coordinator's: all of it, all resident, before and after. The bare ones use what the arena leaves.

With --beside idle, a program of class latency is a tenant too: it has run, and does nothing meanwhile.
With --beside left, it has ended before the first round.
"""

import argparse
import contextlib
import pathlib
import random
import sys
import tempfile

from common import machine, programs, stats, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator
from common.workers import WorkerFailed, together
from loads import ENVIRONMENT

HERE = pathlib.Path(__file__).resolve().parent
ROLES = ("bare A", "bare B", "preloaded")
PAIRS = {
    "preloaded / bare A": ("preloaded", "bare A"),
    "preloaded / bare B": ("preloaded", "bare B"),
    "bare B / bare A": ("bare B", "bare A"),
}


TENANT = "measured"
NEIGHBOUR = "neighbour"
NEIGHBOURS_WORKLOAD = "bert_infer"


def plan(workload, device, baton, serving=None, bare=None):
    """For every role its command and what its environment holds beyond this one's.

    `bare` is what all need to find their driver; `serving` the coordinator that P is to join.
    """
    script = str(HERE / "cost_worker.py")
    argv = [sys.executable, script, workload, "--device", device]
    argv += ["--watch", pathlib.Path(baton).name]
    preloaded = programs.preload_environment(baton)
    joining = serving.joining(TENANT) if serving else {}
    bare = {**(bare or {}), **ENVIRONMENT.get(workload, {})}
    environments = dict.fromkeys(ROLES, bare)
    environments["preloaded"] = {**bare, **preloaded, **joining}
    return {role: (argv, environments[role]) for role in ROLES}


def neighbour(serving, device, workload=NEIGHBOURS_WORKLOAD):
    """A tenant of class latency, as `plan` has them."""
    script = str(HERE / "cost_worker.py")
    settings = {**serving.joining(NEIGHBOUR), "BATON_CLASS": "latency"}
    return [sys.executable, script, workload, "--device", device], settings


def check_tenant(row, pid, reserved_bytes):
    """Raises WorkerFailed unless the status row shows P with all its memory virtual and resident.

    `reserved_bytes` is what the program itself says it has allocated.
    """
    if row is None or row["pid"] != pid:
        raise WorkerFailed(f"the coordinator does not know the preloaded process: {row}")
    if row["bytes"] == 0 or row["bytes"] < reserved_bytes:
        raise WorkerFailed(f"{reserved_bytes} bytes allocated, the coordinator lent {row['bytes']}")
    if row["resident_bytes"] != row["bytes"]:
        raise WorkerFailed(f"not all of its memory is resident: {row}")


def tenant_now(serving, worker, reserved_bytes):
    """The checked status row of P."""
    row = serving.tenant(TENANT)
    check_tenant(row, worker.process.pid, reserved_bytes)
    return row


def measure(
    workload,
    device,
    baton,
    rounds,
    block_seconds,
    timeout,
    seed=5,
    serving=None,
    bare=None,
    beside=None,
):
    """(milliseconds per step for every round of one set: a list of {role: ms}, P's status rows)."""
    rng = random.Random(seed)
    watch = pathlib.Path(baton).name
    measured, rows = [], []
    with (
        tempfile.TemporaryDirectory(prefix="cost-") as folder,
        together(plan(workload, device, baton, serving, bare), folder) as workers,
        contextlib.ExitStack() as stack,
    ):
        ready = {role: worker.answer(timeout) for role, worker in workers.items()}
        for role, worker in workers.items():
            loaded = watch in ready[role]["libraries"]
            if loaded != (role == "preloaded"):
                state = "has loaded" if loaded else "has not loaded"
                raise WorkerFailed(f"{role} {state} {watch}: {worker.last_words()}")
        tenant = workers["preloaded"]
        reserved = ready["preloaded"]["reserved_bytes"]
        if beside:
            others = together({NEIGHBOUR: neighbour(serving, device, beside[1])}, folder)
            with contextlib.ExitStack() as until_it_ends:
                worker = until_it_ends.enter_context(others)[NEIGHBOUR]
                worker.answer(timeout)
                # From when on it was measured is of no interest.
                for one in (worker, tenant, worker):
                    one.ask(f"go {block_seconds / 4}", timeout)
                if beside[0] == "idle":
                    stack.push(until_it_ends.pop_all())
        if serving:
            rows.append(tenant_now(serving, tenant, reserved))
        for _ in range(rounds):
            one = {}
            for role in rng.sample(ROLES, len(ROLES)):
                block = workers[role].ask(f"go {block_seconds}", timeout)
                one[role] = 1000 * block["seconds"] / block["steps"]
            measured.append(one)
        if serving:
            rows.append(tenant_now(serving, tenant, reserved))
            if rows[1]["switches"] != rows[0]["switches"]:
                raise WorkerFailed(f"others had the baton meanwhile: {rows}")
            if not rows[1]["gpu_seconds"] > rows[0]["gpu_seconds"]:
                raise WorkerFailed(f"it did not hold the baton: {rows}")
    return measured, rows


def evaluate(measured):
    """Times per role, and the paired ratios with their intervals."""
    times = {role: stats.summary([one[role] for one in measured]) for role in ROLES}
    ratios = {
        name: stats.summary([one[above] / one[below] for one in measured])
        for name, (above, below) in PAIRS.items()
    }
    return {"milliseconds_per_step": times, "ratios": ratios}


HEADER = ["workload", "ratio", "median", "95 % interval", "quartiles", "min", "max", "rounds"]


def shown(workload, evaluated):
    """Rows of the table for one workload."""
    return [
        [
            workload,
            name,
            f"{ratio['median']:.4f}",
            f"{ratio['low']:.4f} to {ratio['high']:.4f}",
            f"{ratio['first_quartile']:.4f} to {ratio['third_quartile']:.4f}",
            f"{ratio['min']:.4f}",
            f"{ratio['max']:.4f}",
            ratio["count"],
        ]
        for name, ratio in evaluated["ratios"].items()
    ]


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="libbaton.so")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("cost.json"))
    parser.add_argument("--workloads", nargs="+", default=["resnet152_train", "bert_infer"])
    parser.add_argument("--blocks", type=int, default=60, help="blocks of all three together")
    parser.add_argument("--sets", type=int, default=1, help="sets of processes to share them")
    parser.add_argument("--block-seconds", type=float, default=2)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for any one answer")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--limit", type=float, default=1.01, help="the median P/A that is allowed")
    parser.add_argument("--serve", action="store_true", help="P is the tenant of a `baton serve`")
    parser.add_argument("--beside", choices=["idle", "left"], help="with --serve; a latency program")
    parser.add_argument("--neighbour", default=NEIGHBOURS_WORKLOAD, help="what that one computes")
    parser.add_argument("--arena", default="50%", help="with --serve; the bare ones get the rest")
    parser.add_argument("--host-pool", default="2GiB", help="with --serve")
    parser.add_argument("--driver", help="of `baton serve`, if it is to be another: sim, or a file")
    arguments = parser.parse_args()
    if not arguments.baton.is_file():
        parser.error(f"{arguments.baton} does not exist")
    if arguments.serve and (missing := Install.of(arguments.baton).missing()):
        parser.error(f"not beside {arguments.baton.name}: {', '.join(missing)}")
    if arguments.beside and not arguments.serve:
        parser.error("--beside needs --serve")
    if arguments.sets < 1 or arguments.blocks < arguments.sets * len(ROLES):
        parser.error("every set needs one round of 3 blocks at least")
    return arguments


@contextlib.contextmanager
def coordinator(arguments):
    """(a running coordinator or None, what bare programs need in their environment)."""
    with contextlib.ExitStack() as stack:
        driver = Driver(Install.of(arguments.baton), arguments.driver)
        if arguments.serve:
            serving = Coordinator(driver, arguments.arena, arguments.host_pool)
            stack.enter_context(serving)
            yield serving, driver.bare(serving.folder)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cost-"))
            yield None, driver.bare(folder)


def main():
    """Measures every workload, writes the results, prints a table."""
    arguments = parse()
    programs.end_tidily()
    rounds = arguments.blocks // len(ROLES) // arguments.sets
    results, failures = {}, {}
    for workload in arguments.workloads:
        measured, rows = [], []
        try:
            for number in range(arguments.sets):
                print(f"{workload}: set {number + 1}, {rounds} rounds", flush=True)
                with coordinator(arguments) as (serving, bare):
                    one_set, status_rows = measure(
                        workload,
                        arguments.device,
                        arguments.baton,
                        rounds,
                        arguments.block_seconds,
                        arguments.timeout,
                        number,
                        serving,
                        bare,
                        (arguments.beside, arguments.neighbour) if arguments.beside else None,
                    )
                measured += one_set
                rows += status_rows
        except (WorkerFailed, NoCoordinator) as failure:
            failures[workload] = str(failure)
        if measured:
            results[workload] = {"rounds": measured, "tenant": rows, **evaluate(measured)}
    result = {
        "kind": "cost",
        "machine": machine.describe(),
        "block_seconds": arguments.block_seconds,
        "sets": arguments.sets,
        "limit": arguments.limit,
        "serve": arguments.serve,
        "beside": arguments.beside,
        "workloads": results,
        "failures": failures,
    }
    machine.write_json(arguments.out, result)
    for workload, failure in failures.items():
        print(f"{workload} failed: {failure}", file=sys.stderr)
    rows = [row for name, evaluated in results.items() for row in shown(name, evaluated)]
    print(table.text(HEADER, rows))
    for name, evaluated in results.items():
        times = evaluated["milliseconds_per_step"]
        print(f"{name}: " + ", ".join(f"{r} {times[r]['median']:.3f} ms" for r in ROLES))
    held = all(
        evaluated["ratios"]["preloaded / bare A"]["median"] <= arguments.limit
        for evaluated in results.values()
    )
    print(f"limit of {arguments.limit}: {'held' if held and not failures else 'NOT held'}")
    sys.exit(0 if held and results and not failures else 1)


if __name__ == "__main__":
    main()
