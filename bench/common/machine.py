"""Describes the machine, the GPU and the command, so that a result file says where it comes from.

Nothing here opens the CUDA driver: the controller of a benchmark must not be a GPU client itself.
No absolute path gets into a result: paths inside the repository become relative to it, others keep
their last part only.
"""

import datetime
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
from importlib import metadata

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

PACKAGES = (
    "torch",
    "torchvision",
    "transformers",
    "triton",
    "jax",
    "jaxlib",
    "cupy-cuda13x",
    "numba",
    "numba-cuda",
    "numpy",
)


def scrub(text):
    """`text` without absolute paths."""
    text = text.replace(str(REPOSITORY) + os.sep, "").replace(str(REPOSITORY), ".")
    return re.sub(r"(?<![\w./:])/(?:[\w.+@-]+/)+([\w.+@-]+)", r"\1", text)


def command_line():
    """The command that runs now, as a user would type it."""
    words = ["python3", *sys.argv]
    return scrub(" ".join(shlex.quote(word) for word in words))


def package_versions():
    """Versions of the packages that the workloads may use, for those installed."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def gpus():
    """Name, driver version and memory of every GPU, as nvidia-smi tells them; empty without one."""
    fields = ("name", "driver_version", "memory.total")
    query = [
        "nvidia-smi",
        f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader",
    ]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.split(", ") for line in shown.stdout.splitlines() if line.strip()]
    return [dict(zip(fields, row)) for row in rows]


def cpu_model():
    """The processor's name, from /proc/cpuinfo."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else platform.machine()


def describe():
    """Everything a reader needs to know about where a measurement was made."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command_line(),
        "gpus": gpus(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": package_versions(),
    }


def indented(value):
    """`value` as indented JSON, a list of numbers on one line."""
    # In JSON no string has a line break of its own.
    numbers = re.compile(r"\[(\n[-+\d.eE,\s]+)\]")
    text = json.dumps(value, indent=1)
    return numbers.sub(lambda found: f"[{' '.join(found[1].split())}]", text)


def write_json(path, value):
    """Writes `value` as indented JSON and makes the folder if need be."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(indented(value) + "\n")
