"""Describes the measured machine: processors, memory, system, GPUs and driver."""
import os
import pathlib
import platform
import subprocess


def _first(path, begins):
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith(begins):
            return line.split(":", 1)[1].strip()
    return ""


def driver_version():
    """The version of the NVIDIA driver; empty if there is none."""
    try:
        result = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                                text=True, timeout=20)
        if result.returncode == 0 and result.stdout.strip():
            return result.stdout.split()[0]
    except (OSError, subprocess.TimeoutExpired):
        pass
    try:
        return pathlib.Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""


def distribution():
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def sockets():
    folders = pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
    return len({file.read_text().strip() for file in folders}) or 1


def describe():
    return {"processor": _first("/proc/cpuinfo", "model name") or platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "sockets": sockets(), "memory_gib": round(int(_first("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
            "system": f"{distribution()}, Linux {platform.release()}", "driver": driver_version() or None,
            "python": platform.python_version()}
