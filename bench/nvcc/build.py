#!/usr/bin/env python3
"""Builds runtime_api.cu in four ways: static and shared runtime, both kinds of default stream.

    python3 bench/nvcc/build.py --out target/bench

Takes nvcc from NVCC= or PATH, and the runtime library from that toolkit, also where the toolkit is
a set of pip packages that have libcudart.so.13 but no libcudart.so.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent / "runtime_api.cu"

VARIANTS = {
    "nvcc_static": ("static", "legacy"),
    "nvcc_shared": ("shared", "legacy"),
    "nvcc_static_ptds": ("static", "per-thread"),
    "nvcc_shared_ptds": ("shared", "per-thread"),
}


def find_nvcc():
    """Path of nvcc; None without one."""
    usual = "/usr/local/cuda/bin/nvcc"
    wanted = os.environ.get("NVCC") or shutil.which("nvcc") or usual
    return pathlib.Path(wanted).resolve() if shutil.which(wanted) else None


def library_folders(nvcc):
    """The toolkit's folders that hold a CUDA runtime: those nvcc tells, and those beside it."""
    told = subprocess.run(
        [str(nvcc), "-dryrun", "-o", "nothing", str(SOURCE)], capture_output=True, text=True
    )
    candidates = [pathlib.Path(found) for found in re.findall(r'"-L([^"]+)"', told.stderr)]
    candidates += [nvcc.parent.parent / name for name in ("lib64", "lib")]
    found = (folder.resolve() for folder in candidates if list(folder.glob("libcudart*")))
    return list(dict.fromkeys(found))


def link_name(folders, out):
    """A folder in which -lcudart finds the shared runtime: one of `folders`, or a made one."""
    for folder in folders:
        if (folder / "libcudart.so").exists():
            return folder
    shared = sorted(path for folder in folders for path in folder.glob("libcudart.so.*"))
    made = out / "lib"
    made.mkdir(parents=True, exist_ok=True)
    link = made / "libcudart.so"
    link.unlink(missing_ok=True)
    if shared:
        link.symlink_to(shared[0])
    return made


def build(name, nvcc, folders, out):
    """Builds one variant; gives the program's path, or raises RuntimeError with nvcc's words."""
    runtime, default_stream = VARIANTS[name]
    program = out / name
    command = [nvcc, "-O2", "-std=c++17", "-cudart", runtime, "--default-stream", default_stream]
    # Shared runtimes are found again where they were linked.
    for folder in folders:
        command += ["-L", folder, "-Xlinker", f"-rpath,{folder}"]
    command += ["-o", program, SOURCE]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"nvcc could not build {name}: {(done.stderr or done.stdout)[-1500:]}")
    return program


def build_all(out):
    """Paths of the programs by name, and reasons by name for those that could not be built."""
    out = pathlib.Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    nvcc = find_nvcc()
    if nvcc is None:
        return {}, {name: "nvcc is not installed" for name in VARIANTS}
    folders = library_folders(nvcc)
    folders = list(dict.fromkeys([link_name(folders, out), *folders]))
    programs, reasons = {}, {}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = {name: pool.submit(build, name, nvcc, folders, out) for name in VARIANTS}
        for name, job in jobs.items():
            try:
                programs[name] = job.result()
            except RuntimeError as error:
                reasons[name] = str(error)
    return programs, reasons


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="target/bench", help="folder for the programs")
    programs, reasons = build_all(parser.parse_args().out)
    for path in programs.values():
        print(path)
    for reason in reasons.values():
        print(reason, file=sys.stderr)
    sys.exit(1 if reasons else 0)


if __name__ == "__main__":
    main()
