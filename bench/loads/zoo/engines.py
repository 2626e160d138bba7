"""Parts of the GPU and of its software that write memory past the program's own streams: decoders, and files."""

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


class Bits:
    """Bits of an H.264 stream (ITU-T H.264, 7.2 and 9.1)."""

    def __init__(self):
        self.bits = []

    def fixed(self, count, value):
        """u(n)"""
        self.bits += [value >> at & 1 for at in reversed(range(count))]
        return self

    def golomb(self, *values):
        """ue(v); se(v) of zero is the same."""
        for value in values:
            self.fixed(2 * (value + 1).bit_length() - 1, value + 1)
        return self

    def align(self):
        """To a whole byte."""
        self.bits += [0] * (-len(self.bits) % 8)
        return self

    def unit(self, kind):
        """A NAL unit, with the bytes that keep start codes apart."""
        self.fixed(1, 1).align()
        raw = bytes(int("".join(map(str, self.bits[at : at + 8])), 2) for at in range(0, len(self.bits), 8))
        out, zeros = bytearray([0, 0, 0, 1, kind]), 0
        for byte in raw:
            if zeros == 2 and byte <= 3:
                out.append(3)
                zeros = 0
            out.append(byte)
            zeros = 0 if byte else zeros + 1
        return bytes(out)


def still_picture(pixels):
    """An H.264 stream of one picture that is not compressed: `pixels` is (macroblocks a side, squared, 384) bytes."""
    side = round(len(pixels) ** 0.5)
    sequence = Bits().fixed(8, 66).fixed(8, 0).fixed(8, 10).golomb(0, 0, 2, 0).fixed(1, 0).golomb(side - 1, side - 1)
    picture = Bits().golomb(0, 0).fixed(2, 0).golomb(0, 0, 0).fixed(3, 0).golomb(0, 0, 0).fixed(3, 0b100)
    blocks = Bits().golomb(0, 7, 0).fixed(4, 0).golomb(0).fixed(2, 0).golomb(0, 1)
    for block in pixels:
        blocks.golomb(25).align()
        for byte in block:
            blocks.fixed(8, byte)
    return sequence.fixed(4, 0b1100).unit(0x67) + picture.unit(0x68) + blocks.unit(0x65)


class Decoder:
    """The GPU's video decoder (NVDEC), by what `nvcuvid.h` and `cuviddec.h` describe."""

    CODEC_H264, CHROMA_420, NV12, END_OF_STREAM = 4, 1, 0, 1

    class Creation(ctypes.Structure):
        """`CUVIDDECODECREATEINFO`"""

        _fields_ = [
            *((name, ctypes.c_ulong) for name in ("width", "height", "surfaces")),
            *((name, ctypes.c_int) for name in ("codec", "chroma")),
            *((name, ctypes.c_ulong) for name in ("flags", "depth", "intra_only", "most_width", "most_height", "_0")),
            ("display", ctypes.c_short * 4),
            *((name, ctypes.c_int) for name in ("format", "deinterlace")),
            *((name, ctypes.c_ulong) for name in ("out_width", "out_height", "outputs")),
            ("lock", ctypes.c_void_p),
            ("target", ctypes.c_short * 4),
            ("_1", ctypes.c_ulong * 5),
        ]

    class Parser(ctypes.Structure):
        """`CUVIDPARSERPARAMS`"""

        CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        _fields_ = [
            *((name, ctypes.c_int) for name in ("codec", "surfaces", "rate", "threshold", "delay", "flags")),
            ("_0", ctypes.c_uint * 4),
            ("data", ctypes.c_void_p),
            ("sequence", CALLBACK),
            ("decode", CALLBACK),
            ("display", CALLBACK),
            ("_1", ctypes.c_void_p * 9),
        ]

    class Packet(ctypes.Structure):
        """`CUVIDSOURCEDATAPACKET`"""

        _fields_ = [
            ("flags", ctypes.c_ulong),
            ("bytes", ctypes.c_ulong),
            ("payload", ctypes.c_char_p),
            ("timestamp", ctypes.c_longlong),
        ]

    def __init__(self, side, shown):
        self.library, self.shown = ctypes.CDLL("libnvcuvid.so.1"), shown
        size = 16 * side
        self.decoder, self.parser = ctypes.c_void_p(), ctypes.c_void_p()
        creation = self.Creation(size, size, 4, self.CODEC_H264, self.CHROMA_420, format=self.NV12)
        creation.most_width = creation.most_height = creation.out_width = creation.out_height = size
        creation.outputs = 1
        self.ask("cuvidCreateDecoder", ctypes.byref(self.decoder), ctypes.byref(creation))
        self.callbacks = [self.Parser.CALLBACK(one) for one in (lambda *_: 4, self.decode, self.display)]
        parser = self.Parser(self.CODEC_H264, 4, 0, 100, 0)
        parser.sequence, parser.decode, parser.display = self.callbacks
        self.ask("cuvidCreateVideoParser", ctypes.byref(self.parser), ctypes.byref(parser))

    def ask(self, name, *arguments):
        """Raises what went wrong."""
        answer = getattr(self.library, name)(*arguments)
        if answer:
            raise RuntimeError(f"{name} answers {answer}")

    def play(self, stream):
        """Decodes a stream to its end."""
        packet = self.Packet(self.END_OF_STREAM, len(stream), stream, 0)
        self.ask("cuvidParseVideoData", self.parser, ctypes.byref(packet))

    def decode(self, _, picture):
        """The parser has found a picture."""
        self.ask("cuvidDecodePicture", self.decoder, ctypes.c_void_p(picture))
        return 1

    def display(self, _, info):
        """The parser has a picture to show: its first number says which."""
        if not info:
            return 1
        at, pitch = ctypes.c_ulonglong(), ctypes.c_uint()
        processing = (ctypes.c_int * 128)(1)
        number = ctypes.cast(info, ctypes.POINTER(ctypes.c_int))[0]
        mapped = ctypes.byref(at), ctypes.byref(pitch), ctypes.byref(processing)
        self.ask("cuvidMapVideoFrame64", self.decoder, ctypes.c_int(number), *mapped)
        self.shown(at.value, pitch.value)
        self.ask("cuvidUnmapVideoFrame64", self.decoder, at)
        return 1


def nvdec(device):
    """Pictures that the video decoder (NVDEC) writes into memory of its own, from which the program copies them."""
    side = 8
    generator = torch.Generator().manual_seed(7)
    streams = []
    for _ in range(3):
        pixels = torch.randint(1, 256, (side * side, 384), generator=generator, dtype=torch.uint8)
        streams.append((pixels, still_picture(pixels.tolist())))
    kept = torch.rand((8 << 20,), generator=generator).to(device)
    picture = torch.zeros((24 * side, 16 * side), dtype=torch.uint8, device=device)
    torch.cuda.synchronize()
    copy = ctypes.CDLL("libcuda.so.1").cuMemcpyDtoD_v2

    def shown(at, pitch):
        for row in range(picture.shape[0]):
            to = ctypes.c_ulonglong(picture.data_ptr() + row * picture.shape[1])
            if answer := copy(to, ctypes.c_ulonglong(at + row * pitch), ctypes.c_size_t(picture.shape[1])):
                raise RuntimeError(f"cuMemcpyDtoD answers {answer}")

    decoder = Decoder(side, shown)
    while True:
        for pixels, stream in streams:
            decoder.play(stream)
            luma = pixels[:, :256].reshape(side, side, 16, 16).transpose(1, 2).reshape(16 * side, 16 * side)
            if not torch.equal(picture[: 16 * side].cpu(), luma):
                raise RuntimeError("the decoder's picture is another one")
            kept = kept * 0.999 + 0.001
            yield picture.float(), kept[::4096]


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
