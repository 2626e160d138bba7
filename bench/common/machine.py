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


# A value that fits is on one line: so a measurement is a line, and what changes shows.
LINE = 240


def indented(value, depth=0):
    """`value` as JSON that is broken into lines only where one would be too long."""
    whole = json.dumps(value)
    if len(whole) + depth <= LINE or not isinstance(value, dict | list) or not value:
        return whole
    inside = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {indented(one, depth + 1)}" for key, one in value.items()]
        opening, closing = "{", "}"
    else:
        opening, closing = "[", "]"
        parts = [indented(one, depth + 1) for one in value]
        if all(isinstance(one, int | float) for one in value):
            return opening + ", ".join(parts) + closing
    body = f",\n{inside}".join(parts)
    return f"{opening}\n{inside}{body}\n{' ' * depth}{closing}"


def write_json(path, value):
    """Writes `value` as JSON and makes the folder if need be."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(indented(value) + "\n")
