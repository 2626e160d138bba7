#!/usr/bin/env python3
"""Takes results of driver_facts into bench/results/driver_facts.json.

Each answer that a newer run gives replaces the older one.
"""

import json
import pathlib
import sys

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

from common import current, machine  # noqa: E402

KIND = "driver_facts"


def main():
    """Command line: result files."""
    kept = BENCH / "results" / f"{KIND}.json"
    files = [kept] * kept.exists() + [pathlib.Path(name) for name in sys.argv[1:]]
    results = [json.loads(file.read_text()) for file in files]
    if any(result.get("kind") != KIND for result in results):
        sys.exit("join: not all of these are results of driver_facts")
    machine.write_json(kept, current.joined(KIND, results))


if __name__ == "__main__":
    main()
