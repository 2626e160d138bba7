#!/usr/bin/env python3
"""How long it takes to take a program off the GPU in the middle of a long kernel, and back.

    python3 bench/pausing.py --baton target/release --out pausing.json

One program multiplies matrices in single kernels of about 100 ms that fill the GPU, and compares
every product bit for bit with the first. Another one, of class latency, asks for the GPU again and
again; their memory does not fit together, so that with each turn some of it goes to the host and
back. Reported: how long the driver took to pause, how long it was from the request to the first
kernel, and the second program's small kernels beside a paused one, against the same alone.

With --queue the first program adds to all of its memory instead, in kernels of about a millisecond
that it never waits for: when it is paused, its thread is inside the driver, at a full queue. The
second one begins to ask when that is so.

With --gpu N all this is on another GPU than the first, and the first program's products are on all
GPUs in turn: only that one is Baton's, and the work on the others is no concern of anybody's.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from common import machine, programs, table
from common.coordinator import Coordinator, Driver, Install
from common.stats import figures

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20


def ask(argv, settings, timeout):
    """The JSON object on a program's last line."""
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=settings)
    if ran.returncode != 0:
        raise SystemExit(f"{argv[-3:]} failed: {machine.scrub(ran.stderr[-programs.TAIL :])}")
    return json.loads(ran.stdout.splitlines()[-1])


def main():
    """Runs, writes, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("pausing.json"))
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--gap", type=float, default=0.03, help="seconds between requests")
    parser.add_argument("--side", type=int, default=13_000, help="of the matrices")
    parser.add_argument("--queue", action="store_true", help="short kernels, a queue full of them")
    parser.add_argument("--gpu", type=int, help="which one, if not the first")
    parser.add_argument("--megabytes", type=int, default=512, help="of the second program")
    parser.add_argument("--arena", default="2560MiB")
    parser.add_argument("--serve", default="", help="more options for `baton serve`, in one word")
    parser.add_argument("--timeout", type=float, default=300)
    arguments = parser.parse_args()
    programs.end_tidily()
    on = [] if arguments.gpu is None else ["--gpu", str(arguments.gpu)]

    def work(*words):
        return [sys.executable, str(HERE / "pausing_work.py"), *map(str, words), *on]

    small = work("ask", arguments.cycles, arguments.gap, arguments.megabytes)
    alone = ask(work("ask", 50, 0.01, arguments.megabytes), None, arguments.timeout)
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "trace")
        more = ["--trace", str(trace), *on, *arguments.serve.split()]
        driver = Driver(Install.of(arguments.baton))
        with Coordinator(driver, arguments.arena, "8GiB", more=more) as one:
            long = work("queue", 2048) if arguments.queue else work("multiply", arguments.side)
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            with subprocess.Popen(one.run("long", long, "batch"), **pipes) as other:
                other.stdout.readline()
                shared = ask(one.run("ask", small, "latency"), None, arguments.timeout)
                products = json.loads(other.communicate("\n")[0].splitlines()[-1])
            status = one.status()
        records = [json.loads(line) for line in trace.read_text().splitlines()]
    came = [r for r in records if r["to"] == "ask" and r["from"] == "long"]
    paused = [r["pause_ms"] for r in came if r["pause_ms"] > 0]
    result = {
        "kind": "pausing",
        "machine": machine.describe(),
        "queue": arguments.queue,
        "gpu": arguments.gpu,
        "products": products,
        # True if its driver ever waited for preempted work before it unmapped memory.
        "stuck": status["unmap_timeouts"] > 0,
        "pause": figures(paused) if paused else None,
        "granted": figures([r["phases"]["granted_ms"] for r in came]),
        "first_kernel": figures(shared["first_ms"]),
        "small_kernel": figures(shared["small_ms"]),
        "small_kernel_alone": figures(alone["small_ms"]),
        "bytes_in": status["bytes_in"],
        "bytes_out": status["bytes_out"],
        "pauses": status["preemptions"],
    }
    machine.write_json(arguments.out, result)
    names = ("pause", "granted", "first_kernel", "small_kernel", "small_kernel_alone")
    rows = [
        [name, value["n"], *(f"{value[q]:.3f}" for q in ("p50_ms", "p99_ms", "max_ms"))]
        for name in names
        if (value := result[name])
    ]
    print(table.text(["", "n", "P50 ms", "P99 ms", "most ms"], rows))
    equal = products["wrong"] == 0 and products["products"] > 1
    print(
        f"{products['products']} products, {'all equal' if equal else 'NOT EQUAL'}; "
        f"{status['preemptions']} pauses{', STUCK ONCE' if result['stuck'] else ''}, "
        f"{status['bytes_in'] // MIB} MiB in, "
        f"{status['bytes_out'] // MIB} MiB out"
    )
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
