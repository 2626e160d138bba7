"""Evicts one tenant again and again, at random times, as a user would by `baton evict`."""

import collections
import random
import threading

from common.coordinator import NoCoordinator

# Why the coordinator did not evict, by what it says.
REFUSALS = {
    "in use again": "in use",
    "has left": "left",
    "no tenant called": "absent",
    "no room": "no room",
    "does not answer": "unresponsive",
    "not evicted in": "hung",
}
PATIENCE = 30


def refusal(error):
    """One word or two for a refusal."""
    return next((word for said, word in REFUSALS.items() if said in str(error)), "other")


class Evictor:
    """A context in which the tenant `name` is evicted every `mean` seconds on average.

    The pauses between one eviction's end and the next one's beginning are exponentially
    distributed; `seed` fixes them. Afterwards `done` says how often the tenant was evicted, and
    `refused` how often not and why.
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
            try:
                self.longest = max(self.longest, self.coordinator.evict(self.name, PATIENCE))
                self.done, absent = self.done + 1, 0
            except NoCoordinator as error:
                why = refusal(error)
                self.refused[why] += 1
                absent = 0.2 if why == "absent" else 0

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
