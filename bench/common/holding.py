"""Holds one thread of a program inside a call that it makes, as if the driver did not let it go on.

By `ptrace`, which is between two threads: so one of ours does all of it. The program has to be a
descendant, as far as the system asks for that.
"""

import contextlib
import ctypes
import os
import pathlib
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long

SYSCALL, DETACH, SEIZE, INTERRUPT, LISTEN, SYSCALL_INFO = 24, 17, 0x4206, 0x4207, 0x4208, 0x420E
TRACE_SYSTEM_CALLS = 1
WALL = 0x40000000
# How a stop at a call is told from a signal, and the stop that SIGSTOP makes.
AT_CALL, STOPPED = 0x85, 128
ENTRY = 1
# A driver's calls to change mappings (ioctl, mmap, munmap), by architecture. The simulated one
# makes no call: there a thread is held that is about to say that it is done (write).
CALLS = {"x86_64": {16, 9, 11, 1}, "aarch64": {29, 222, 215, 64}}


class CannotHold(OSError):
    """The system does not allow it, or there is no such thread."""


def thread_of(pid, name):
    """The number of a process's thread of that name; None if there is none."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if task.joinpath("comm").read_text().strip() == name:
                return int(task.name)
    return None


def ptrace(request, thread, address=0, data=0):
    """One request, which has to succeed."""
    answer = LIBC.ptrace(request, thread, address, data)
    if answer < 0:
        error = ctypes.get_errno()
        raise CannotHold(error, f"ptrace: {os.strerror(error)}")
    return answer


@contextlib.contextmanager
def halted(pid, name):
    """A thread does nothing meanwhile, wherever it is."""
    thread = thread_of(pid, name)
    if thread is None:
        raise CannotHold(f"process {pid} has no thread {name}")
    ptrace(SEIZE, thread)
    try:
        ptrace(INTERRUPT, thread)
        os.waitpid(thread, WALL)
        yield
    finally:
        # It may have ended.
        LIBC.ptrace(DETACH, thread, 0, 0)


class Holding:
    """Waits in the background until the thread makes one of those calls, and holds it there."""

    def __init__(self, pid, name):
        self.thread = thread_of(pid, name)
        if self.thread is None:
            raise CannotHold(f"process {pid} has no thread {name}")
        # True while it is held, inside.
        self.inside = False
        self.failure = None
        self._calls = CALLS[os.uname().machine]
        self._over, self._begun = threading.Event(), threading.Event()
        self._tracer = threading.Thread(target=self._trace)

    def __enter__(self):
        self._tracer.start()
        self._begun.wait()
        if self.failure:
            self._tracer.join()
            raise self.failure
        return self

    def __exit__(self, *_):
        self._over.set()
        self._tracer.join()

    def _trace(self):
        try:
            ptrace(SEIZE, self.thread, 0, TRACE_SYSTEM_CALLS)
            ptrace(INTERRUPT, self.thread)
            self._follow()
        except (OSError, ChildProcessError) as failure:
            self.failure = failure if isinstance(failure, CannotHold) else CannotHold(str(failure))
        finally:
            self._begun.set()

    def _follow(self):
        """From one stop to the next."""
        is_asked = False
        while True:
            stopped, status = os.waitpid(self.thread, os.WNOHANG | WALL)
            if not stopped:
                if self._over.is_set() and not is_asked:
                    ptrace(INTERRUPT, self.thread)
                    is_asked = True
                time.sleep(0.0002)
                continue
            if not os.WIFSTOPPED(status):
                return
            self._begun.set()
            number, event = os.WSTOPSIG(status), status >> 16
            if number == AT_CALL and not self._over.is_set() and self._is_entry():
                self.inside = True
                self._over.wait()
            if self._over.is_set():
                ptrace(DETACH, self.thread)
                return
            if event == STOPPED and number != 5:
                ptrace(LISTEN, self.thread)
            else:
                ptrace(SYSCALL, self.thread, 0, 0 if event or number == AT_CALL else number)

    def _is_entry(self):
        """True if it is about to make one of those calls."""
        info = (ctypes.c_uint8 * 88)()
        ptrace(SYSCALL_INFO, self.thread, len(info), ctypes.addressof(info))
        call = int.from_bytes(bytes(info[24:32]), "little")
        return info[0] == ENTRY and call in self._calls
