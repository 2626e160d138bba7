#!/usr/bin/env python3
"""Measures how fast a coordinator moves a tenant's memory: out, in, and both ways at once.

    python3 bench/transfer.py --baton target/release --out transfer.json

A case is KIND:BYTES:PIECE, each with a coordinator of its own. The tenants' memory is allocated in
pieces of PIECE and written anew before every move, so that none of it is known to the host already.

  one        A second tenant allocates as much as the arena holds, in one piece: the first is
             evicted, nothing comes in. It gives that back and the first goes on: nothing goes out.
  exchange   Two tenants of that size take turns in an arena that has room for one.

Rates are bytes over the time from the first copy's submission to the last one's end, as
`baton status --json` reports both; unmapping, mapping and the whole switch stand beside them. The
contents are added up, granule by granule, after every restore. The yardstick is PyTorch copying
through one pinned buffer, in the same run (transfer_reference.py).
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile
import time

from common import machine, programs, stats, switches, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator, parse_bytes
from common.switching import figure
from common.workers import WorkerFailed, together

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
CASES = [
    "one:10GiB:512MiB",
    "one:10GiB:20MiB",
    "exchange:10GiB:512MiB",
    "exchange:10GiB:20MiB",
    "one:40GiB:512MiB",
]
OUT_OF_MEMORY = 2


@dataclasses.dataclass(frozen=True)
class Case:
    """The memory that is moved, and the pieces in which it was allocated."""

    kind: str
    size: int
    piece: int

    @classmethod
    def of(cls, text):
        """`one:10GiB:512MiB`"""
        kind, size, piece = text.split(":")
        if kind not in ("one", "exchange"):
            raise ValueError(f"`{kind}` is neither one nor exchange")
        case = cls(kind, parse_bytes(size), parse_bytes(piece))
        if case.size < case.piece or case.piece % 4:
            raise ValueError(f"`{text}`: less than one piece")
        return case

    @property
    def count(self):
        """Pieces."""
        return self.size // self.piece

    @property
    def name(self):
        """As the table shows it."""
        what = {"one": "one tenant of", "exchange": "two tenants of"}[self.kind]
        return f"{what} {in_words(self.size)} by {in_words(self.piece)}"

    def arena(self):
        """Room for one tenant, in pieces of whole 2 MiB, with the sums of its granules."""
        whole = self.count * -(-self.piece // (2 * MIB)) * 2 * MIB
        return whole + max(whole // 20, 16 * MIB)

    def host_pool(self):
        """Room for what is evicted and, in an exchange, for what leaves while that comes in."""
        return int(self.size * (1.25 if self.kind == "one" else 2.3)) + 64 * MIB


def in_words(count):
    """A round number of bytes as people write it."""
    for unit, size in (("GiB", 1 << 30), ("MiB", MIB)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} B"


class Scene:
    """A coordinator and its tenants, and the record of what was moved in each step."""

    def __init__(self, serving, workers, timeout):
        self.serving, self.workers, self.timeout = serving, workers, timeout
        self.before = serving.status()

    def ask(self, name, command):
        """The answer of a tenant; WorkerFailed if it met an error."""
        answer = self.workers[name].ask(command, self.timeout)
        if "error" in answer:
            raise WorkerFailed(f"{name}: {command}: {answer['said']}")
        return answer

    def skip(self):
        """Counts all moves up to now for no step."""
        self.before, _, _ = self.serving.since(self.before)

    def moved(self, direction, waited):
        """The step's sums: all that was moved since the last one."""
        after, records, complete = self.serving.since(self.before)
        scrubbed = after.get("scrubbed_bytes", 0) - self.before.get("scrubbed_bytes", 0)
        scrub_seconds = after.get("scrub_seconds", 0) - self.before.get("scrub_seconds", 0)
        self.before = after
        step = {"direction": direction, "waited_seconds": waited, "complete": complete}
        step |= {"scrubbed_bytes": scrubbed, "scrub_seconds": scrub_seconds}
        return step | switches.total(records)


def fill_arena(scene, name, most):
    """Allocates `most` bytes or as nearly as there is room for: (bytes, seconds)."""
    step = max(2 * MIB, most // 40 // (2 * MIB) * 2 * MIB)
    for size in range(most // (2 * MIB) * 2 * MIB, most // 2, -step):
        answer = scene.workers[name].ask(f"alloc 1 {size}", scene.timeout)
        if "error" not in answer:
            return size, answer["seconds"]
        if answer["error"] != OUT_OF_MEMORY:
            raise WorkerFailed(f"{name}: {answer['said']}")
    raise WorkerFailed(f"{name}: half of the arena is not to be had")


def one(case, scene, repeat):
    """Evicting and restoring one tenant: (steps, whether all contents were right)."""
    steps, equal = [], True
    scene.ask("first", f"alloc {case.count} {case.piece}")
    most = scene.before["arena"]["bytes"]
    for number in range(repeat):
        scene.ask("first", f"write {number + 1}")
        scene.skip()
        most, waited = fill_arena(scene, "second", most)
        steps.append(scene.moved("out", waited))
        scene.ask("second", "free")
        scene.skip()
        waited = scene.ask("first", "touch")["seconds"]
        steps.append(scene.moved("in", waited))
        equal &= restored(scene, "first")
    return steps, equal


def exchange(case, scene, repeat):
    """Two tenants in turn: (steps, whether all contents were right)."""
    steps, equal = [], True
    for name in ("first", "second"):
        scene.ask(name, f"alloc {case.count} {case.piece}")
        scene.ask(name, "write 1")
    for number in range(2 * repeat):
        name = ("first", "second")[number % 2]
        scene.skip()
        waited = scene.ask(name, "touch")["seconds"]
        steps.append(scene.moved("both", waited))
        equal &= restored(scene, name)
        scene.ask(name, f"write {number + 2}")
    return steps, equal


def restored(scene, name):
    """True if all of a tenant's memory is as the tenant wrote it."""
    return scene.ask(name, "check")["equal"]


KINDS = {"one": one, "exchange": exchange}


def run_case(case, arguments, driver):
    """The result of one case, with a coordinator of its own."""
    serving = Coordinator(driver, case.arena(), case.host_pool(), arguments.quantum)
    script = [sys.executable, str(HERE / "transfer_tenant.py")]
    with serving, tempfile.TemporaryDirectory(prefix="transfer-") as folder:
        names = ("first", "second")
        plan = {name: (serving.run(name, script), serving.settings) for name in names}
        try:
            with together(plan, folder) as workers:
                for worker in workers.values():
                    worker.answer(arguments.timeout)
                scene = Scene(serving, workers, arguments.timeout)
                started = time.monotonic()
                steps, equal = KINDS[case.kind](case, scene, arguments.repeat)
                seconds = time.monotonic() - started
                status = serving.status()
        except WorkerFailed as failure:
            raise WorkerFailed(f"{failure}\nThe coordinator said: {serving.said()}") from None
    return {
        "case": dataclasses.asdict(case),
        "name": case.name,
        "arena_bytes": status["arena"]["configured_bytes"],
        "host_pool_bytes": status["host_pool"]["bytes"],
        "tenants": status["tenants"],
        "extents": status["extents"],
        "steps": steps,
        "seconds": seconds,
        "equal": equal,
        "scrub_gbps": switches.rate(
            sum(step["scrubbed_bytes"] for step in steps),
            sum(step["scrub_seconds"] for step in steps),
        ),
        "ways": [way(steps, one_way, case.size) for one_way in ways_of(case)],
    }


def ways_of(case):
    """(direction of a step, which rate) of the figures that a case is for."""
    if case.kind == "one":
        return [("out", "out"), ("in", "in")]
    return [("both", "out"), ("both", "in")]


def way(steps, direction_and_rate, size):
    """Median and worst of one figure over the steps of its direction.

    A step counts only if at least half of `size` was moved and every byte is accounted for.
    """
    direction, rate = direction_and_rate
    steps = [step for step in steps if step["direction"] == direction]
    good = [s for s in steps if s["complete"] and s[f"bytes_{rate}"] >= size / 2]
    return {
        "direction": direction,
        "rate": rate,
        "count": len(good),
        "steps": len(steps),
        "bytes": stats.median([s[f"bytes_{rate}"] for s in good]),
        "other_bytes": stats.median(
            [s["bytes_in" if rate == "out" else "bytes_out"] for s in good]
        ),
        "gbps": stats.median([s[f"{rate}_gbps"] for s in good]),
        "gbps_min": stats.least([s[f"{rate}_gbps"] for s in good]),
        **{
            field: stats.median([s[field] for s in good])
            for field in ("unmap_ms", "map_ms", "drain_ms", "switch_ms", "waited_seconds")
        },
    }


def reference(arguments):
    """GB/s of PyTorch's own copies, medians; the reason in words where there are none."""
    argv = [sys.executable, str(HERE / "transfer_reference.py"), "--repeat", str(arguments.repeat)]
    argv += ["--bytes", str(parse_bytes(arguments.reference_bytes))]
    outcome = programs.run(argv, timeout=arguments.timeout)
    if outcome.status != "ok":
        return {"reason": machine.scrub(outcome.reason.strip())}
    found = json.loads(outcome.stdout.strip().splitlines()[-1])
    medians = {way: stats.median(found[way]) for way in ("in", "out", "both_in", "both_out")}
    return {"gbps": medians, "samples": found}


HEADER = [
    "tenants",
    "moved",
    "GB",
    "times",
    "GB/s",
    "least",
    "torch GB/s",
    "ratio",
    "unmap ms",
    "map ms",
    "switch ms",
    "contents",
]


def shown(result, torch_gbps):
    """Rows of the table for one case."""
    rows = []
    for one_way in result["ways"]:
        alone = one_way["direction"] != "both"
        yardstick = torch_gbps.get(one_way["rate"] if alone else f"both_{one_way['rate']}")
        ratio = one_way["gbps"] and yardstick and one_way["gbps"] / yardstick
        rows.append(
            [
                result["name"],
                one_way["rate"] if alone else f"{one_way['rate']}, both at once",
                figure(one_way["bytes"] and one_way["bytes"] / 1e9),
                f"{one_way['count']} of {one_way['steps']}",
                figure(one_way["gbps"]),
                figure(one_way["gbps_min"]),
                figure(yardstick),
                figure(ratio, 2),
                *(figure(one_way[field]) for field in ("unmap_ms", "map_ms", "switch_ms")),
                "equal" if result["equal"] else "DIFFER",
            ]
        )
    return rows


def holds(result, arguments):
    """True if a case passes: contents right, often enough, as fast as asked."""
    limit = arguments.limit_one if result["case"]["kind"] == "one" else arguments.limit_exchange
    wanted = arguments.repeat if result["case"]["kind"] == "one" else 2 * arguments.repeat - 1
    return result["equal"] and all(
        one_way["count"] >= wanted and one_way["gbps"] >= limit for one_way in result["ways"]
    )


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("transfer.json"))
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="KIND:BYTES:PIECE")
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--quantum", default="20ms")
    parser.add_argument("--limit-one", type=float, default=48, help="GB/s wanted, one way")
    parser.add_argument("--limit-exchange", type=float, default=45, help="GB/s wanted, each way")
    parser.add_argument("--reference-bytes", default="10GiB", help="what PyTorch copies")
    parser.add_argument("--no-reference", dest="reference", action="store_false")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for any one answer")
    parser.add_argument("--driver", help="if it is to be another: sim, or a file")
    parser.add_argument("--sim-memory", default="512MiB", help="the simulated GPU's size")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    try:
        arguments.cases = [Case.of(text) for text in arguments.cases]
    except ValueError as error:
        parser.error(str(error))
    return arguments


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    driver = Driver(Install.of(arguments.baton), arguments.driver, arguments.sim_memory)
    torch = reference(arguments) if arguments.reference else {"reason": "not asked for"}
    results, failures = [], {}
    for case in arguments.cases:
        print(case.name, flush=True)
        try:
            results.append(run_case(case, arguments, driver))
        except (WorkerFailed, NoCoordinator) as failure:
            failures[case.name] = str(failure)
    result = {
        "kind": "transfer",
        "machine": machine.describe(),
        "repeat": arguments.repeat,
        "limits": {"one": arguments.limit_one, "exchange": arguments.limit_exchange},
        "torch": torch,
        "cases": results,
        "failures": failures,
    }
    machine.write_json(arguments.out, result)
    for name, failure in failures.items():
        print(f"{name} failed: {failure}", file=sys.stderr)
    gbps = torch.get("gbps", {})
    print(table.text(HEADER, [row for one in results for row in shown(one, gbps)]))
    if "reason" in torch:
        print(f"no copies by torch: {torch['reason']}")
    held = results and not failures and all(holds(one, arguments) for one in results)
    limits = f"{arguments.limit_one:g} GB/s one way, {arguments.limit_exchange:g} each way at once"
    print(f"contents equal, {limits}: {'held' if held else 'NOT held'}")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
