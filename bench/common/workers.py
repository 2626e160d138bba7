"""A program that runs only when told: commands on its standard input, answers on a pipe of its own.

The program answers every command with one JSON line on the descriptor that `--answers` names; not
on standard output, where libraries print as they like. The first answer comes unasked, when it is
ready.
"""

import contextlib
import json
import os
import pathlib
import select
import subprocess
import time

from common import machine, programs


class WorkerFailed(RuntimeError):
    """A worker died, answered nothing in time, or is not what it should be."""


class Worker:
    """The program and the two pipes to it."""

    def __init__(self, role, argv, settings, log):
        """Starts `argv` with `--answers N` added; `log` is a writable file for what it prints."""
        self.role, self.log = role, log
        self.received = b""
        self.answers, theirs = os.pipe()
        self.process = subprocess.Popen(
            [*argv, "--answers", str(theirs)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, **settings},
            pass_fds=[theirs],
            start_new_session=True,
        )
        os.close(theirs)

    def send(self, line):
        """Sends one command."""
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed(f"{self.role} died: {self.last_words()}") from None

    def answer(self, timeout):
        """The next answer of the worker, as an object."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self.received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise WorkerFailed(f"{self.role} did not answer in {timeout:.0f} s")
            chunk = os.read(self.answers, 1 << 16)
            if not chunk:
                status = self.process.wait(10)
                raise WorkerFailed(f"{self.role} died ({status}): {self.last_words()}")
            self.received += chunk
        line, self.received = self.received.split(b"\n", 1)
        return json.loads(line)

    def ask(self, line, timeout):
        """Sends one command and gives its answer."""
        self.send(line)
        return self.answer(timeout)

    def last_words(self):
        """The end of what the worker printed."""
        self.log.flush()
        text = pathlib.Path(self.log.name).read_text(errors="replace")
        return machine.scrub(text[-programs.TAIL :])

    def end(self):
        """Asks the worker to end; kills it if it will not."""
        try:
            self.send("quit")
            self.process.wait(20)
        except (WorkerFailed, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self.answers)
        self.log.close()


@contextlib.contextmanager
def together(plan, folder):
    """Workers by name, of a plan {name: (argv, settings)}; all are ended at the end.

    Their logs are files in `folder`.
    """
    workers = {}
    try:
        for name, (argv, settings) in plan.items():
            log = open(pathlib.Path(folder, name.replace(" ", "-") + ".log"), "w+")
            workers[name] = Worker(name, argv, settings, log)
        yield workers
    finally:
        for worker in workers.values():
            worker.end()
