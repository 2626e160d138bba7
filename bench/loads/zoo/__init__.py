"""The zoo: many small GPU programs as people write them, by framework.

Each is a generator function `program(device)` that works for ever and gives, at the end of every
step, what it has computed: an array, or several. Seeds are fixed. A step takes some tens of
milliseconds and many launches, so that whatever happens to the program happens in the middle of it.
No program knows anything of Baton.
"""

import dataclasses
import importlib

from loads import SETTINGS as COMMON

# For every program, before anything else is imported. NVLink multicast can put a host's GPUs out of
# service, so no library may try it.
SETTINGS = {
    **COMMON,
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """Where a program is, and what is known of it."""

    framework: str
    module: str
    function: str
    settings: tuple = ()
    # Why two runs may differ by so much though both are right: None, or (relative, reason).
    tolerance: tuple | None = None
    # Which documented limit of Baton the program meets, if any.
    limit: str | None = None

    def load(self):
        """The function; imports its framework."""
        return getattr(importlib.import_module(f"loads.zoo.{self.module}"), self.function)


def family(framework, module, functions, prefix=""):
    """Entries of functions that need no settings, by name."""
    return {prefix + name: Entry(framework, module, name) for name in functions.split()}
