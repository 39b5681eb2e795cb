"""Samples the activity of GPUs during a measurement every 100 ms from NVML, which nvidia-smi also uses."""
import ctypes
import os
import threading

INTERVAL_SECONDS = 0.1


class Rates(ctypes.Structure):  # nvmlUtilization_t, in per cent
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Memory(ctypes.Structure):  # nvmlMemory_t, in bytes
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Sampler:
    """Means over some of CUDA's devices, which are assumed to be in the order of the PCI bus."""

    def __init__(self, devices):
        self.handles, self.samples = [], []
        self.lock, self.stopped = threading.Lock(), threading.Event()
        if not devices:
            return
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if self.nvml.nvmlInit_v2() != 0:
            return
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        for device in devices:
            self._add(visible.split(",")[device] if visible else str(device))
        threading.Thread(target=self._sample, daemon=True).start()

    def _add(self, name):
        """Adds the GPU with this number or UUID."""
        handle = ctypes.c_void_p()
        if name.isdigit():
            result = self.nvml.nvmlDeviceGetHandleByIndex_v2(int(name), ctypes.byref(handle))
        else:
            result = self.nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
        if result == 0:
            self.handles.append(handle)

    def _sample(self):
        while not self.stopped.wait(INTERVAL_SECONDS):
            for handle in self.handles:
                rates, memory, milliwatts = Rates(), Memory(), ctypes.c_uint()
                if self.nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) or \
                        self.nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
                    continue
                self.nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(milliwatts))
                with self.lock:
                    self.samples.append((rates.gpu / 100, rates.memory / 100, memory.used, milliwatts.value / 1000))

    def reset(self):
        with self.lock:
            self.samples = []

    def mean(self):
        with self.lock:
            samples = self.samples
        if not samples:
            return None
        names = ("utilisation", "memory_utilisation", "memory_bytes", "power_watts")
        return {name: sum(sample[i] for sample in samples) / len(samples) for i, name in enumerate(names)}
