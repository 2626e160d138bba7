"""A coordinator, a training that holds the GPU, and servers whose memory is taken on command."""

import contextlib
import random
import time

from common.workers import WorkerFailed, together

TRAINER = "trainer"
MIB = 1 << 20
# Left of the arena when it is filled: the training may need a little more now and then.
SLACK = 128 * MIB


class Scene:
    """The workers by name, one of which may be the trainer, and what is done with them."""

    def __init__(self, serving, workers, timeout):
        self.serving, self.workers, self.timeout = serving, workers, timeout
        # Where in its step the training is when a request comes shall be by chance.
        self.chance = random.Random(1)

    def ask(self, name, command):
        """A worker's answer."""
        return self.workers[name].ask(command, self.timeout)

    def tenant(self, status, name):
        """A tenant's row of a status; WorkerFailed if there is none."""
        for row in status["tenants"]:
            if row["name"] == name:
                return row
        raise WorkerFailed(f"{name} is no tenant; the coordinator said: {self.serving.said()}")

    def fill(self):
        """Makes the trainer take what is left of the arena, so that all others have to leave it."""
        status = self.serving.status()
        arena = status["arena"]
        room = arena["bytes"] - arena["headroom_bytes"] - self.tenant(status, TRAINER)["bytes"]
        # Of a small arena, as in a dry run, less is left.
        self.ask(TRAINER, f"fill {max(0, room - min(SLACK, arena['bytes'] // 32))}")
        return self.tenant(self.serving.status(), TRAINER)["bytes"]

    def settle(self, patience=20):
        """Waits until the trainer has the GPU and as much of its memory as it gets: the status.

        It has all that it gets when nothing is moved any more. A little longer, by chance.
        """
        deadline, before = time.monotonic() + patience, None
        while time.monotonic() < deadline:
            status = self.serving.status()
            away = self.tenant(status, TRAINER)["evicted_bytes"]
            moved = (away, status["bytes_in"], status["bytes_out"])
            if status["holder"] == TRAINER and moved == before:
                break
            before = moved
            time.sleep(0.05)
        else:
            raise WorkerFailed(f"{TRAINER} does not get the GPU in {patience} s")
        time.sleep(self.chance.uniform(0, 0.15))
        return self.serving.status()

    def request(self, name, number):
        """A request, with any memory resident."""
        return {"input": number, **self.ask(name, f"request {number}")}

    def rested_request(self, name, number):
        """A request after about as long a rest as before one to an evicted server."""
        time.sleep(0.15 + self.chance.uniform(0, 0.15))
        return self.request(name, number)

    def evicted_request(self, name, number):
        """Evicts the server while the trainer runs, lets that settle, and sends a request.

        Beside the server's answer: how long evicting took, whether the server had really nothing on
        the GPU, what the coordinator had copied out before, and its record of the switch, if it
        tells of one.
        """
        seconds = self.serving.evict(name)
        before = self.settle()
        sample = self.request(name, number)
        return sample | {
            "evict_ms": seconds * 1e3,
            "was_away": self.tenant(before, name)["resident_bytes"] == 0,
            "had_left": before["bytes_out"],
            "record": self.record(before, name),
        }

    def record(self, before, name, patience=1):
        """The record of the switch to `name` since that status; written when all has arrived."""
        last = max((record["n"] for record in before["recent"]), default=0)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            for record in self.serving.status()["recent"]:
                if record["n"] > last and record["to"] == name:
                    return record
            time.sleep(0.02)
        return None


@contextlib.contextmanager
def started(plan, folder, timeout, shim=None, preloaded=True):
    """(workers by name, their first answers) of a plan {name: (argv, settings)}; {name: why} is
    third, for those that do not start. With `shim`, all must have loaded it, or none.
    """
    with together(plan, folder) as workers:
        answers, failures = {}, {}
        for name, worker in list(workers.items()):
            try:
                answers[name] = worker.answer(timeout)
                loaded = shim in answers[name].get("libraries", [])
                if shim and loaded != preloaded:
                    has = "has" if loaded else "has not"
                    raise WorkerFailed(f"{name} {has} loaded {shim}")
            except WorkerFailed as failure:
                failures[name] = str(failure)
        yield {name: workers[name] for name in workers if name not in failures}, answers, failures
