"""Runs one program, bare or under the preload library, and says what came of it.

Never raises for what the program does: a crash, a timeout or a program that is not there is an
outcome with a reason, so that one failure does not end a long series.
"""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

# A program that misses a library it needs exits with this status and says so on stderr.
ABSENT = 77
# The message of ld.so when it could not load LD_PRELOAD's library. The program then runs bare.
NOT_PRELOADED = "cannot be preloaded"
TAIL = 1500


@dataclasses.dataclass
class Outcome:
    """The outcome of one run."""

    status: str  # ok | failed | timeout | absent
    seconds: float
    stdout: str = ""
    reason: str = ""
    libraries: tuple = ()


def end_tidily():
    """Makes SIGTERM end this program as an exception does, so that what it started ends too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def preload_environment(library):
    """The setting that preloads `library`, ahead of all that is preloaded already."""
    before = os.environ.get("LD_PRELOAD")
    path = str(pathlib.Path(library).resolve())
    return {"LD_PRELOAD": f"{path}:{before}" if before else path}


def mapped_libraries(pid, names):
    """Those of `names` that occur as a file name in the memory map of process `pid`."""
    try:
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return set()
    files = {line.rsplit("/", 1)[-1] for line in maps.splitlines() if "/" in line}
    return {name for name in names if any(f == name or f.startswith(name + ".") for f in files)}


def private_caches(folder):
    """Compiler caches in `folder`, so that every run compiles for itself."""
    return {
        "CUDA_CACHE_PATH": f"{folder}/cuda",
        "CUPY_CACHE_DIR": f"{folder}/cupy",
        "NUMBA_CACHE_DIR": f"{folder}/numba",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "TMPDIR": str(folder),
    }


def run(argv, settings=None, timeout=300, watch=()):
    """Runs `argv` with `settings` added to the environment, in a process group of its own.

    `watch` names libraries; those seen in the program's memory map come back in the outcome.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, **private_caches(folder), **(settings or {})}
        out_path, err_path = pathlib.Path(folder, "stdout"), pathlib.Path(folder, "stderr")
        seen = set()
        started = time.monotonic()
        with out_path.open("wb") as out, err_path.open("wb") as err:
            try:
                child = subprocess.Popen(
                    argv, stdout=out, stderr=err, env=environment, start_new_session=True
                )
            except OSError as error:
                return Outcome("failed", 0.0, reason=str(error))
            timed_out = False
            pause = 0.02
            try:
                while child.poll() is None:
                    if len(seen) < len(watch):
                        seen |= mapped_libraries(child.pid, watch)
                    if time.monotonic() - started > timeout:
                        timed_out = True
                        break
                    try:
                        child.wait(pause)
                    except subprocess.TimeoutExpired:
                        # Looking holds up the program for a moment, so look less and less often.
                        pause = min(2 * pause, 0.5)
                seconds = time.monotonic() - started
            finally:
                end_group(child)
        stdout = out_path.read_text(errors="replace")
        stderr = err_path.read_text(errors="replace")
    return judge(child.returncode, timed_out, seconds, stdout, stderr, tuple(sorted(seen)))


def end_group(child):
    """Kills what is left of the child's process group, and reaps the child."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def judge(returncode, timed_out, seconds, stdout, stderr, libraries):
    """Turns an exit into an outcome with a reason that a reader understands."""
    tail = stderr[-TAIL:] or stdout[-TAIL:]
    if timed_out:
        status, reason = "timeout", f"no end within {seconds:.0f} s: {tail}"
    elif returncode == ABSENT:
        lines = stderr.strip().splitlines()
        status, reason = "absent", lines[-1] if lines else "a library is not installed"
    elif returncode != 0:
        how = f"signal {-returncode}" if returncode < 0 else f"exit status {returncode}"
        status, reason = "failed", f"{how}: {tail}"
    elif NOT_PRELOADED in stderr:
        status, reason = "failed", f"ran bare, not preloaded: {tail}"
    else:
        status, reason = "ok", ""
    return Outcome(status, seconds, stdout, reason, libraries)
