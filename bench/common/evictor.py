"""Evicts one tenant again and again, at random times, in the middle of its work.

It does what a user would: `baton suspend`, `baton evict`, `baton resume`. `baton evict` alone is
refused to a program that goes on at once, so that it would hit a busy program hardly ever.
"""

import collections
import random
import threading
import time

from common.coordinator import NoCoordinator

# Why the coordinator did not evict, by what it says.
REFUSALS = {
    "in use again": "in use",
    "has left": "left",
    "no program called": "absent",
    "no room": "no room",
    "does not answer": "unresponsive",
    "not evicted in": "hung",
    "hung for": "hung",
}
PATIENCE = 30


def refusal(error):
    """One word or two for a refusal."""
    return next((word for said, word in REFUSALS.items() if said in str(error)), "other")


class Evictor:
    """A context in which the tenant `name` is evicted every `mean` seconds on average.

    The pauses between one eviction's end and the next one's beginning are exponentially
    distributed; `seed` fixes them. Afterwards `done` says how often the tenant was evicted,
    `refused` how often not and why, and `longest` how many seconds it was kept from work at most.
    """

    def __init__(self, coordinator, name, mean, seed):
        self.coordinator, self.name, self.mean = coordinator, name, mean
        self.random = random.Random(f"{seed} {name}")
        self.done, self.refused, self.longest = 0, collections.Counter(), 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        """Until it is over."""
        # A process that starts is no tenant yet; there is no point in asking as often for that.
        absent = 0
        while not self.over.wait(absent or self.random.expovariate(1 / self.mean)):
            why = self.evict()
            if why:
                self.refused[why] += 1
            else:
                self.done += 1
            absent = 0.2 if why == "absent" else 0

    def evict(self):
        """Evicts once; says why not, if so."""
        started = time.monotonic()
        try:
            self.coordinator.steer("suspend", self.name, PATIENCE)
            try:
                self.coordinator.evict(self.name, PATIENCE)
            finally:
                # However that went, the program has to go on.
                self.coordinator.steer("resume", self.name, PATIENCE)
        except NoCoordinator as error:
            return refusal(error)
        self.longest = max(self.longest, time.monotonic() - started)
        return None

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
