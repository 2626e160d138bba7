"""All that can look at a coordinator, at once: `baton top`, its page, a scrape a second.

Measures the cost of viewers to the programs that they watch. The updates of each viewer are
counted, so that no measurement has viewers that saw nothing.
"""

import fcntl
import http.client
import os
import pty
import re
import socket
import struct
import subprocess
import termios
import threading
import time

# Options of `baton serve`.
OPTIONS = ["--http", "127.0.0.1:0"]
# The terminal size of `baton top`, and the time that a viewer has to see something (seconds).
ROWS, COLUMNS, LIMIT = 50, 160, 30
VIEWERS = ("top", "page", "metrics")


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket file."""

    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT)
        self.path = path

    def connect(self):
        """Instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


class Viewers:
    """A context manager, within which all of them look at a coordinator started with `OPTIONS`."""

    def __init__(self, coordinator):
        self.coordinator, self.over = coordinator, threading.Event()
        # Bytes that each has got.
        self.seen = dict.fromkeys(VIEWERS, 0)
        found = re.search(r"the page is at http://([^/]+)/", coordinator.log.read_text())
        self.page = found.group(1)
        self.token = coordinator.socket.with_suffix(".token").read_text()
        looks = (self.look_at_top, self.look_at_page, self.scrape)
        self.threads = [threading.Thread(target=look, daemon=True) for look in looks]

    def __enter__(self):
        terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
        argv = [str(self.coordinator.install.command), "top"]
        argv += ["--socket", str(self.coordinator.socket)]
        self.terminal = terminal
        self.top = subprocess.Popen(
            argv, stdin=inside, stdout=inside, stderr=inside, env={**os.environ, "TERM": "xterm"}
        )
        os.close(inside)
        # Its socket ends the wait for the next event.
        self.events = http.client.HTTPConnection(self.page, timeout=LIMIT)
        self.events.request("GET", "/events", headers={"Authorization": f"Bearer {self.token}"})
        for thread in self.threads:
            thread.start()
        deadline = time.monotonic() + LIMIT
        while not all(self.seen.values()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"some see nothing: {self.seen}")
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.over.set()
        self.top.kill()
        self.top.wait()
        if self.events.sock:
            self.events.sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        os.close(self.terminal)

    def look_at_top(self):
        """Reads what it draws, until it has ended."""
        while True:
            try:
                self.seen["top"] += len(os.read(self.terminal, 1 << 16))
            except OSError:
                return

    def look_at_page(self):
        """Reads the page's events."""
        answer = self.events.getresponse()
        while not self.over.is_set():
            try:
                line = answer.readline()
            except OSError:
                return
            if not line:
                return
            self.seen["page"] += len(line)

    def scrape(self):
        """As Prometheus does, but more often."""
        path = self.coordinator.socket.with_suffix(".metrics")
        while True:
            connection = UnixConnection(path)
            connection.request("GET", "/metrics")
            self.seen["metrics"] += len(connection.getresponse().read())
            connection.close()
            if self.over.wait(1):
                return
