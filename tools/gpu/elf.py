"""Reads and changes what a 64-bit ELF file tells the dynamic linker: the libraries it needs, and where to look for
them."""
import struct

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_RPATH, DT_RUNPATH = 1, 5, 15, 29


class ElfError(Exception):
    pass


class _Dynamic:
    def __init__(self, path, data):
        if data[:6] != b"\x7fELF\x02\x01":
            raise ElfError(f"{path} is not a 64-bit little-endian ELF file")
        self.data = data
        start, = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        # (type, flags, offset, address, physical address, bytes in the file, bytes in memory, alignment)
        self.segments = [struct.unpack_from("<IIQQQQQQ", data, start + i * size) for i in range(count)]
        self.entries = []
        for kind, _, offset, _, _, length, _, _ in self.segments:
            if kind == PT_DYNAMIC:
                self.entries = list(struct.iter_unpack("<qQ", data[offset:offset + length]))
        if not self.entries:
            raise ElfError(f"{path} has no dynamic section")
        self.strings = self._offset_of(next(value for tag, value in self.entries if tag == DT_STRTAB))

    def _offset_of(self, address):
        for kind, _, offset, begin, _, length, _, _ in self.segments:
            if kind == PT_LOAD and begin <= address < begin + length:
                return offset + address - begin
        raise ElfError(f"no segment holds the address {address:#x}")

    def values(self, *tags):
        """Yields (offset in the file, text) for each entry of these kinds."""
        for tag, value in self.entries:
            if tag in tags:
                begin = self.strings + value
                yield begin, self.data[begin:self.data.index(b"\0", begin)].decode()


def needed(path):
    return [name for _, name in _Dynamic(path, path.read_bytes()).values(DT_NEEDED)]


def rpath(path):
    """Returns the file's library folders, separated by colons; empty if it names none."""
    return ":".join(text for _, text in _Dynamic(path, path.read_bytes()).values(DT_RPATH, DT_RUNPATH))


def set_rpath(path, text):
    """Overwrites the file's library folders with `text`, which must have the same number of bytes. If the file names
    none, it is not changed."""
    data = bytearray(path.read_bytes())
    for begin, before in _Dynamic(path, bytes(data)).values(DT_RPATH, DT_RUNPATH):
        if len(text) > len(before.encode()):
            raise ElfError(f"{path} has no room for the folders {text}: it names {before}")
        data[begin:begin + len(before.encode())] = text.encode().ljust(len(before.encode()), b"\0")
    path.write_bytes(data)
