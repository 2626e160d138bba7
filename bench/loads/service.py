"""The switching measurement's view of a server and a training, the same for all libraries."""

import dataclasses
from collections.abc import Callable

from loads.digest import Digest

# A server gets so many different inputs in turn, so that an answer left over from the request
# before is not taken for the right one.
INPUTS = 4


@dataclasses.dataclass(frozen=True)
class Service:
    """A server. `request(i)` takes its i-th input from the host and leaves outputs on the host.

    `feed(digest, name, value)` adds one of those outputs to a digest. A `stateful` server's answers
    depend on all requests before. `memory()` gives the bytes of its device memory as the library
    counts them.
    """

    request: Callable
    feed: Callable
    parameter_bytes: int
    stateful: bool = False
    memory: Callable = lambda: 0

    def digest(self, outputs):
        """One SHA-256 over the outputs of a request."""
        digest = Digest()
        for i, value in enumerate(outputs):
            self.feed(digest, f"output{i}", value)
        return digest.hex()


@dataclasses.dataclass(frozen=True)
class Training:
    """Endless work. `step(i)` may leave work behind, `wait()` waits for it.

    `fill(bytes)` takes more memory, as much of that as there is, which a step touches a little of;
    it gives what it took.
    """

    step: Callable
    wait: Callable
    fill: Callable
