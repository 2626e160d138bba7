"""NVIDIA's MPS for one measurement: a daemon of its own, and what makes programs its clients.

A program that does not reach the daemon runs without it and says nothing, so the daemon has to be
asked whether it serves anybody. The GPU's compute mode stays as it is.
"""

import contextlib
import os
import pathlib
import subprocess
import tempfile

CONTROL = "nvidia-cuda-mps-control"
# Of a client, in its environment: 0 is normal, 1 below that (MPS manual, CUDA_MPS_CLIENT_PRIORITY).
PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"


class NoMps(RuntimeError):
    """The daemon is not there, does not start, or serves no program."""


class Daemon:
    """A running control daemon; a context manager that ends it. Its files are in `folder`."""

    def __init__(self, folder, timeout=60):
        self.timeout = timeout
        self.settings = {
            "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/mps",
            "CUDA_MPS_LOG_DIRECTORY": f"{folder}/mps-log",
        }

    def __enter__(self):
        for place in self.settings.values():
            pathlib.Path(place).mkdir()
        try:
            self.call("-d")
        except NoMps:
            with contextlib.suppress(NoMps):
                self.call(said="quit")
            raise
        return self

    def __exit__(self, *_):
        self.call(said="quit")

    def call(self, *options, said=""):
        """The control program's answer to options, or to a command that it is told."""
        # Into a file: the daemon keeps what it was started with, and a pipe would have no end.
        with tempfile.TemporaryFile("w+") as out:
            try:
                ran = subprocess.run(
                    [CONTROL, *options],
                    input=f"{said}\n",
                    stdout=out,
                    stderr=out,
                    text=True,
                    timeout=self.timeout,
                    env={**os.environ, **self.settings},
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NoMps(str(error)) from None
            out.seek(0)
            answer = out.read().strip()
        if ran.returncode != 0:
            raise NoMps(f"{CONTROL} ended with {ran.returncode}: {answer}")
        return answer

    def must_serve(self):
        """NoMps if no program has become its client."""
        if not self.call(said="get_server_list"):
            raise NoMps("no program has become its client")
