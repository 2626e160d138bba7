"""The fake shim, built once for all tests."""

import atexit
import functools
import pathlib
import shutil
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent / "fake_shim.c"
_folder = tempfile.TemporaryDirectory(prefix="fake-shim-")
atexit.register(_folder.cleanup)


@functools.cache
def fake_shim():
    """Path of the built library; None where there is no C compiler."""
    if not shutil.which("cc"):
        return None
    path = pathlib.Path(_folder.name, "libbaton.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-o", path, SOURCE], check=True)
    return path
