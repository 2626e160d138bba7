"""A `baton serve` for one measurement, programs as its tenants, and what `baton status` says of it.

Also the other side of every comparison: the environment in which a program runs bare, which differs
from nothing on a GPU, and on the simulated driver leads to that.
"""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from common import machine, programs, switches

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
MIB = 1 << 20


class NoCoordinator(RuntimeError):
    """The coordinator does not start, does not answer, or has ended."""


def parse_bytes(text):
    """`20MiB`, `1.5GiB` as a number of bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]iB)?", text)
    if not found:
        raise ValueError(f"`{text}` is no size; write for example 8GiB or 20MiB")
    return int(float(found[1]) * UNITS[found[2] or ""])


def word(amount):
    """An amount for the command line: bytes, cut to whole 2 MiB, or a word that is one already."""
    return f"{amount // (2 * MIB) * 2}MiB" if isinstance(amount, int) else amount


@dataclasses.dataclass(frozen=True)
class Install:
    """Where the command and its libraries lie: side by side."""

    folder: pathlib.Path

    @classmethod
    def of(cls, path):
        """From the folder, or from the path of any of the files in it."""
        path = pathlib.Path(path).resolve()
        return cls(path if path.is_dir() else path.parent)

    @property
    def command(self):
        """The `baton` command."""
        return self.folder / "baton"

    @property
    def shim(self):
        """The library that is preloaded."""
        return self.folder / "libbaton.so"

    def missing(self):
        """Names of the files that are not there."""
        return [file.name for file in (self.command, self.shim) if not file.is_file()]

    @classmethod
    def check(cls, path, parser):
        """Ends the program as for a wrong argument if files are not there."""
        if missing := cls.of(path).missing():
            parser.error(f"not in {path}: {', '.join(missing)}")


@dataclasses.dataclass(frozen=True)
class Driver:
    """The driver that programs use: None is the system's, `sim` the simulated one, else a file."""

    install: Install
    name: str | None = None
    memory: str = "512MiB"

    def options(self):
        """The options of `baton` commands."""
        return ["--driver", self.name] if self.name else []

    def library(self):
        """The driver's file; None where the system knows it."""
        return self.install.folder / "libsimcuda.so" if self.name == "sim" else self.name

    def settings(self, folder):
        """The environment of all: coordinator, tenants and bare programs share one simulated GPU.

        `folder` is a place for its file.
        """
        if self.name != "sim":
            return {}
        return {"SIMCUDA_GPU_FILE": f"{folder}/gpu", "SIMCUDA_MEMORY": self.memory}

    def bare(self, folder):
        """The environment in which a program without Baton finds this driver."""
        library = self.library()
        if library is None:
            return {}
        place = pathlib.Path(folder, "driver")
        place.mkdir(exist_ok=True)
        link = place / "libcuda.so.1"
        if not link.exists():
            link.symlink_to(pathlib.Path(library).resolve())
        before = os.environ.get("LD_LIBRARY_PATH")
        path = f"{place}:{before}" if before else str(place)
        return {"LD_LIBRARY_PATH": path, **self.settings(folder)}


class Coordinator:
    """A running `baton serve`; a context manager that ends it."""

    def __init__(self, driver, arena, host_pool, quantum=None, more=(), timeout=180):
        """Sizes are bytes or words of the command line (`90%`); `more` options come last."""
        self.driver, self.install, self.timeout = driver, driver.install, timeout
        # The system's folder and a short name: a socket's path has a limit.
        self._folder = tempfile.TemporaryDirectory(prefix="baton-", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self._folder.name)
        self.socket, self.log = self.folder / "s.sock", self.folder / "serve.log"
        # Its records end with it too.
        self.settings = {**driver.settings(self.folder), "XDG_STATE_HOME": str(self.folder)}
        # --force: some virtual machines are given their memory only as it is used, and until then
        # look as if they had too little for the pool.
        self.argv = [str(self.install.command), "serve", *driver.options(), "--force"]
        self.argv += ["--socket", str(self.socket), "--arena", word(arena)]
        self.argv += ["--host-pool", word(host_pool)]
        self.argv += [*(["--quantum", quantum] if quantum else []), *more]
        self.process = None

    def __enter__(self):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.settings},
                start_new_session=True,
            )
        try:
            self.wait_until_ready()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def wait_until_ready(self):
        """Until it answers and its host pool is there: pages are no part of what is measured."""
        deadline = time.monotonic() + self.timeout
        while True:
            if self.process.poll() is not None:
                raise NoCoordinator(f"it ended: {self.said()}")
            status = self.try_status()
            pool = status["host_pool"] if status else None
            if pool and pool["ready_bytes"] >= 0.99 * pool["bytes"]:
                return
            if time.monotonic() > deadline:
                raise NoCoordinator(f"not ready in {self.timeout} s, host pool {pool}")
            time.sleep(0.1)

    def said(self):
        """The end of its log."""
        return machine.scrub(self.log.read_text(errors="replace")[-programs.TAIL :])

    def try_status(self):
        """The output of `baton status --json`; None if nothing answers."""
        argv = [str(self.install.command), "status", "--json", "--socket", str(self.socket)]
        environment = {**os.environ, **self.settings}
        try:
            shown = subprocess.run(argv, capture_output=True, timeout=30, env=environment)
            return json.loads(shown.stdout) if shown.returncode == 0 else None
        except (subprocess.TimeoutExpired, ValueError):
            return None

    def status(self):
        """The output of `baton status --json`."""
        status = self.try_status()
        if status is None:
            raise NoCoordinator(f"it does not answer: {self.said()}")
        return status

    def since(self, before, patience=3):
        """(status now, records of what was moved since the status `before`, whether they are all).

        Waits a while for the records to hold every byte that the counters do.
        """
        deadline = time.monotonic() + patience
        while True:
            after = self.status()
            records = switches.fresh(before, after)
            complete = switches.accounted(before, after, records)
            if complete or time.monotonic() > deadline:
                return after, records, complete
            time.sleep(0.05)

    def tenant(self, name):
        """The status row of the living tenant of that name; None if there is none."""
        rows = [row for row in self.status()["tenants"] if row["name"] == name]
        return rows[0] if rows else None

    def evict(self, name, timeout=120):
        """Moves all memory of an idle tenant to the host; gives how many seconds that took."""
        argv = [str(self.install.command), "evict", "--socket", str(self.socket), name]
        started = time.monotonic()
        try:
            ran = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise NoCoordinator(f"{name} was not evicted in {timeout} s: {self.said()}") from None
        if ran.returncode != 0:
            raise NoCoordinator(f"{name} was not evicted: {machine.scrub(ran.stderr.strip())}")
        return time.monotonic() - started

    def steer(self, verb, name, timeout=120):
        """Has `baton suspend` or `baton resume` act on a tenant."""
        argv = [str(self.install.command), verb, "--socket", str(self.socket), name]
        try:
            ran = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise NoCoordinator(f"{verb} {name}: hung for {timeout} s: {self.said()}") from None
        if ran.returncode != 0:
            raise NoCoordinator(f"{verb} {name}: {machine.scrub(ran.stderr.strip())}")

    def run(self, name, argv, urgency=None):
        """The command line of a program as a tenant; `urgency` is its class."""
        options = ["--socket", str(self.socket), "--name", name, *self.driver.options()]
        options += ["--class", urgency] if urgency else []
        return [str(self.install.command), "run", *options, "--", *map(str, argv)]

    def joining(self, name):
        """The environment that makes a program join without `baton run`."""
        library = self.driver.library()
        return {
            **programs.preload_environment(self.install.shim),
            **self.settings,
            "BATON_SOCKET": str(self.socket),
            "BATON_NAME": name,
            **({"BATON_DRIVER": str(library)} if library else {}),
        }

    def end(self):
        """Ends it as a service manager would; gives its exit status, -9 if it had to be killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                # The coordinator and its keeper have this session to themselves.
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self._folder.cleanup()
        return self.process.returncode
