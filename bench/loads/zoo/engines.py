"""Parts of the GPU and of its software that write memory past the program's own streams: the JPEG decoder, and files."""

import ctypes
import ctypes.util
import glob
import os
import pathlib
import tempfile

import torch


def jpeg(device):
    """Pictures that the GPU decodes (nvJPEG, and the JPEG engine where there is one)."""
    from torchvision.io import decode_jpeg, encode_jpeg

    generator = torch.Generator().manual_seed(5)
    small = torch.rand((24, 3, 40, 60), generator=generator)
    smooth = torch.nn.functional.interpolate(small, scale_factor=16, mode="bilinear")
    pictures = [encode_jpeg((255 * one).to(torch.uint8), quality=90) for one in smooth]
    kept = torch.rand((8 << 20,), generator=generator).to(device)
    while True:
        decoded = decode_jpeg(pictures, device=device)
        kept = kept * 0.999 + 0.001
        yield torch.stack(decoded).float().mean(dim=0), kept[::4096]


class CuFile:
    """The few calls of cuFile that read a file into the GPU's memory."""

    class Handle(ctypes.Structure):
        """`CUfileDescr_t`: a descriptor of the system's."""

        _fields_ = [("kind", ctypes.c_int), ("fd", ctypes.c_uint64), ("operations", ctypes.c_void_p)]

    class Answer(ctypes.Structure):
        """`CUfileError_t`."""

        _fields_ = [("error", ctypes.c_int), ("driver", ctypes.c_int)]

    def __init__(self):
        # Without the kernel's module, by the host's memory.
        os.environ["CUFILE_FORCE_COMPAT_MODE"] = "true"
        os.environ["CUFILE_ALLOW_COMPAT_MODE"] = "true"
        beside = pathlib.Path(torch.__file__).parents[1] / "nvidia"
        found = glob.glob(str(beside / "**/libcufile.so*"), recursive=True)
        self.library = ctypes.CDLL(next(iter(sorted(found)), "libcufile.so.0"))
        for name in ("cuFileDriverOpen", "cuFileHandleRegister", "cuFileBufRegister"):
            getattr(self.library, name).restype = self.Answer
        self.library.cuFileRead.restype = ctypes.c_ssize_t
        self.check(self.library.cuFileDriverOpen(), "cuFileDriverOpen")

    @staticmethod
    def check(answer, what):
        """Raises what went wrong."""
        if answer.error:
            raise RuntimeError(f"{what} answers {answer.error} ({answer.driver})")

    def open(self, path):
        """A handle of a file."""
        handle = ctypes.c_void_p()
        descriptor = self.Handle(1, os.open(path, os.O_RDONLY), None)
        answer = self.library.cuFileHandleRegister(ctypes.byref(handle), ctypes.byref(descriptor))
        self.check(answer, "cuFileHandleRegister")
        return handle

    def read(self, handle, tensor):
        """Reads into all of a tensor."""
        size = tensor.numel() * tensor.element_size()
        to = ctypes.c_void_p(tensor.data_ptr())
        nowhere = ctypes.c_int64(0)
        read = self.library.cuFileRead(handle, to, ctypes.c_size_t(size), nowhere, nowhere)
        if read != size:
            raise RuntimeError(f"cuFileRead answers {read}")


def cufile(device):
    """A file that cuFile reads into the GPU's memory."""
    contents = torch.rand((4 << 20,), generator=torch.Generator().manual_seed(6))
    files = CuFile()
    with tempfile.NamedTemporaryFile() as file:
        file.write(contents.numpy().tobytes())
        file.flush()
        handle = files.open(file.name)
        total = torch.zeros_like(contents, device=device)
        into = torch.empty_like(total)
        torch.cuda.synchronize()
        while True:
            files.read(handle, into)
            total = total * 0.5 + into
            yield total[::64], into[::64]
