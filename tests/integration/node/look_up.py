"""Repeats how programs look for the driver before they load it, and prints each result. Runs inside a container or
`carve run`, with the available interpreter."""
import ctypes
import ctypes.util
import os
import subprocess


def triton():
    """Triton's NVIDIA backend: the folders of libcuda.so.1 from `ldconfig -p`, or "libcuda.so cannot found!".

    source  triton third_party/nvidia/backend/driver.py, libcuda_dirs()
    """
    libs = subprocess.check_output(["/sbin/ldconfig", "-p"]).decode(errors="ignore")
    locs = [line.split()[-1] for line in libs.splitlines() if "libcuda.so.1" in line]
    dirs = [os.path.dirname(loc) for loc in locs]
    assert any(os.path.exists(os.path.join(path, "libcuda.so.1")) for path in dirs), "libcuda.so cannot found!"
    return dirs


if __name__ == "__main__":
    print("triton", *triton())
    for name in ("cuda", "nvidia-ml"):
        print("ctypes", ctypes.util.find_library(name))
    print("loaded", ctypes.CDLL(ctypes.util.find_library("cuda")).cuInit(0))
    print("others", ctypes.util.find_library("c"))
