"""One SHA-256 over every output of a workload: its name, type, shape and bytes, in order."""

import hashlib


class Digest:
    """Collects outputs; equal digests mean that every output was equal bit for bit."""

    def __init__(self):
        self._hash = hashlib.sha256()
        self.outputs = 0
        self.bytes = 0

    def raw(self, name, data, kind="bytes"):
        """Adds bytes-like `data` under `name`."""
        data = memoryview(data).cast("B")
        self._hash.update(f"{name}|{kind}|{len(data)}\n".encode())
        self._hash.update(data)
        self.outputs += 1
        self.bytes += len(data)

    def array(self, name, array):
        """Adds a NumPy array, or anything that NumPy takes for one."""
        import numpy

        array = numpy.ascontiguousarray(array)
        self.raw(name, array.reshape(-1).view(numpy.uint8), f"{array.dtype}{array.shape}")

    def tensor(self, name, tensor):
        """Adds a PyTorch tensor of any device and type."""
        import torch

        tensor = tensor.detach().contiguous()
        kind = f"{tensor.dtype}{tuple(tensor.shape)}"
        self.raw(name, tensor.reshape(-1).view(torch.uint8).cpu().numpy(), kind)

    def parameters(self, model):
        """Adds every parameter and buffer of a PyTorch model."""
        for name, value in model.state_dict().items():
            self.tensor(name, value)

    def hex(self):
        """The digest so far."""
        return self._hash.hexdigest()
