"""Writes an HFS+ volume with what is in a folder: no free program of Linux does that with all that macOS has.

    hfsplus.py FOLDER VOLUME [NODE]

NODE is the number of bytes of a node of the catalogue. Names, modes, owners, times in seconds, hard and symbolic links,
devices and extended attributes below `user.` are kept. A colon in a name is a slash on the volume. A file whose name
ends in `.scattered` has each of its blocks elsewhere; one that ends in `.cmpN` is stored as macOS compresses files in
its way N; `resource:NAME` is the resource fork of NAME. An attribute whose name ends in `.xN` has its value N times:
Linux has none of more than 64 KiB. The format: Apple's Technical Note TN1150.
"""

import functools
import os
import stat
import struct
import sys
import zlib

BLOCK = 4096
FROM_1904 = 2082844800

# The map of a resource fork with one resource.
MAP = bytes(24) + struct.pack(">HHH4sHHHHI", 28, 50, 0, b"cmpf", 0, 10, 1, 0xFFFF, 0) + bytes(4)


class Blocks:
    """The blocks of the volume. The first one has the header."""

    def __init__(self):
        self.blocks = [b""]

    def store(self, data, scattered=False):
        """Stores bytes, and returns the extents in which they lie."""
        extents = []
        for at in range(0, len(data), BLOCK):
            if scattered:
                self.blocks.append(b"hole" * (BLOCK // 4))
            number = len(self.blocks)
            self.blocks.append(data[at : at + BLOCK].ljust(BLOCK, b"\0"))
            if extents and extents[-1][0] + extents[-1][1] == number:
                extents[-1][1] += 1
            else:
                extents.append([number, 1])
        return extents


def fork(length, extents):
    blocks = sum(count for _, count in extents)
    return struct.pack(">QII", length, 0, blocks) + packed(extents[:8])


def packed(extents):
    return b"".join(struct.pack(">II", *one) for one in extents).ljust(64, b"\0")


def text(name):
    units = name.encode("utf-16-be")
    return struct.pack(">H", len(units) // 2) + units


def tree(records, node, longest_key):
    """A b-tree of records: key without its length, and data."""

    def make(kind, height, number, following, records):
        body, offsets = bytearray(14), []
        for record in records:
            offsets.append(len(body))
            body += record
        offsets.append(len(body))
        struct.pack_into(">IIbBHH", body, 0, following, 0, kind, height, len(records), 0)
        body += bytes(node - len(body) - 2 * len(offsets))
        return bytes(body) + b"".join(struct.pack(">H", at) for at in reversed(offsets))

    nodes, first, last, height = [None], 0, 0, 0
    level = [(key, struct.pack(">H", len(key)) + key + data) for key, data in records]
    root = 0
    while level:
        height += 1
        groups, size = [[]], 14
        for key, record in level:
            record += bytes(len(record) % 2)
            if size + len(record) + 2 * (len(groups[-1]) + 2) > node:
                groups.append([])
                size = 14
            groups[-1].append((key, record))
            size += len(record)
        start, above = len(nodes), []
        for at, group in enumerate(groups):
            number = start + at
            following = number + 1 if at + 1 < len(groups) else 0
            nodes.append(make(-1 if height == 1 else 0, height, number, following, [record for _, record in group]))
            key = group[0][0]
            above.append((key, struct.pack(">H", len(key)) + key + struct.pack(">I", number)))
        if height == 1:
            first, last = start, len(nodes) - 1
        root = len(nodes) - 1
        if len(groups) == 1:
            break
        level = above
    header = struct.pack(">HIIIIHHIIHIBBI", height, root, len(records), first, last, node, longest_key, len(nodes), 0, 0, 0, 0, 0, 6)
    used = bytearray(node - 256)
    # Of more nodes, nodes of their own would tell: no reader asks for these.
    for number in range(min(len(nodes), 8 * len(used))):
        used[number // 8] |= 0x80 >> number % 8
    # An unused node looks like a leaf.
    nodes[0] = make(1, 0, 0, 0, [header.ljust(106, b"\0"), bytes(128), bytes(used)])
    return b"".join(nodes)


def runs(data, longest, farthest):
    """What an LZ77 coder makes of bytes: literals, and how far back and how long what follows them is, or 0 and 0."""
    seen, at, literals = {}, 0, 0
    while at < len(data):
        found = seen.get(data[at : at + 4])
        seen[data[at : at + 4]] = at
        if found is None or at - found > farthest or at + 4 > len(data):
            at += 1
            continue
        length = 4
        while at + length < len(data) and length < longest and data[found + length] == data[at + length]:
            length += 1
        yield data[literals:at], at - found, length
        at += length
        literals = at
    yield data[literals:], 0, 0


@functools.lru_cache(8)
def lzvn(data):
    """Literals, and matches in each form of code."""
    out = bytearray()
    for literals, distance, length in runs(data, 500, 65535):
        for start in range(0, len(literals), 271):
            run = literals[start : start + 271]
            out.extend([0xE0 | len(run)] if len(run) < 16 else [0xE0, len(run) - 16])
            out.extend(run)
        own = min(length, 10)
        if not length:
            continue
        if distance < 0x600:
            out.extend([own - 3 << 3 | distance >> 8, distance & 0xFF])
        elif distance < 1 << 14:
            rest = distance << 2 | (own - 3) & 3
            out.extend([0xA0 | own - 3 >> 2, rest & 0xFF, rest >> 8])
        else:
            out.extend([own - 3 << 3 | 7, distance & 0xFF, distance >> 8])
        rest = length - own
        while rest:
            run = min(rest, 271)
            out.extend([0xF0 | run] if run < 16 else [0xF0, run - 16])
            rest -= run
    return bytes(out) + b"\x06" + bytes(7)


def lzfse(data):
    """A block of LZVN, and one that is not packed."""
    half = len(data) // 2
    own = lzvn(data[:half])
    return b"bvxn" + struct.pack("<II", half, len(own)) + own + b"bvx-" + struct.pack("<I", len(data) - half) + data[half:] + b"bvx$"


def smaller(data, pack, mark):
    own = pack(data)
    return own if len(own) < len(data) else bytes([mark]) + data


def compressed(kind, data):
    """What the attribute has behind its header, and the resource fork."""
    pack, mark = {3: (zlib.compress, 0xFF), 4: (zlib.compress, 0xFF), 7: (lzvn, 6), 8: (lzvn, 6), 11: (lzfse, 0xFF), 12: (lzfse, 0xFF)}.get(kind, (None, 0))
    if kind == 1:
        return data, b""
    if kind in (3, 7, 11):
        return smaller(data, pack, mark), b""
    blocks = [smaller(data[at : at + 65536], pack, mark) for at in range(0, len(data), 65536)]
    if kind == 4:
        start, table, places = 4 + 8 * len(blocks), struct.pack("<I", len(blocks)), b""
        for block in blocks:
            table += struct.pack("<II", start, len(block))
            start += len(block)
        places = table + b"".join(blocks)
        head = struct.pack(">IIII", 256, 256 + 4 + len(places), 4 + len(places), 50).ljust(256, b"\0")
        return b"", head + struct.pack(">I", len(places)) + places + MAP
    start, table = 4 * (len(blocks) + 1), b""
    for block in blocks:
        table += struct.pack("<I", start)
        start += len(block)
    return b"", table + struct.pack("<I", start) + b"".join(blocks)


def main(folder, volume, node=4096):
    blocks, catalogue, attributes, overflow = Blocks(), [], [], []
    numbers, linked = {"": 2}, {}
    new = [16]

    def number():
        new[0] += 1
        return new[0]

    def key(parent, name):
        return struct.pack(">I", parent) + text(name)

    def add(parent, name, data, thread, own):
        catalogue.append((key(parent, name), data))
        if thread:
            catalogue.append((key(own, ""), struct.pack(">HHI", thread, 0, parent) + text(name)))

    def record(kind, own, info, flags=0, owner_flags=0, special=0, finder=bytes(32), forks=b"", count=0):
        times = [int(time) + FROM_1904 for time in (info.st_mtime, info.st_mtime, info.st_ctime, info.st_atime)] + [0]
        head = struct.pack(">HHII5I", kind, flags, count, own, *times)
        rights = struct.pack(">IIBBHI", info.st_uid, info.st_gid, 0, owner_flags, info.st_mode & 0xFFFF, special)
        return head + rights + finder + bytes(8) + forks

    def stored(own, kind, data, scattered):
        extents = blocks.store(data, scattered)
        for at in range(8, len(extents), 8):
            first = sum(count for _, count in extents[:at])
            overflow.append((struct.pack(">BBII", kind, 0, own, first), packed(extents[at : at + 8])))
        return fork(len(data), extents)

    def attribute(own, name, value, inline):
        name = struct.pack(">HII", 0, own, 0) + text(name)
        if inline:
            attributes.append((name, struct.pack(">IIII", 0x10, 0, 0, len(value)) + value))
        else:
            attributes.append((name, struct.pack(">II", 0x20, 0) + fork(len(value), blocks.store(value))))

    def xattrs(path, own):
        """Stores the extended attributes of a file or folder. Returns its flags, and what Finder has."""
        flags, finder = 0, bytes(32)
        for xattr in os.listxattr(path, follow_symlinks=False):
            value = os.getxattr(path, xattr, follow_symlinks=False)
            _, repeated, times = xattr.rpartition(".x")
            if repeated and times.isdigit():
                value *= int(times)
            if xattr == "user.com.apple.FinderInfo":
                finder = value
            elif xattr.startswith("user."):
                attribute(own, xattr[5:], value, len(value) < 2000)
                flags = 4
        return flags, finder

    def file(path, info, own, special=0):
        """The record of a file."""
        name, mode = os.path.basename(path), info.st_mode
        data = b""
        if stat.S_ISREG(mode):
            with open(path, "rb") as opened:
                data = opened.read()
        elif stat.S_ISLNK(mode):
            data = os.readlink(path).encode()
        elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            special = os.major(info.st_rdev) << 24 | os.minor(info.st_rdev)
        flags = owner_flags = 0
        resource = b""
        beside = os.path.join(os.path.dirname(path), "resource:" + name)
        if os.path.exists(beside):
            with open(beside, "rb") as opened:
                resource = opened.read()
        kind = name.rpartition(".cmp")[2]
        if ".cmp" in name and stat.S_ISREG(mode):
            inside, resource = compressed(int(kind), data)
            attribute(own, "com.apple.decmpfs", b"fpmc" + struct.pack("<IQ", int(kind), len(data)) + inside, True)
            data, flags, owner_flags = b"", 4, 0x20
        more, finder = xattrs(path, own)
        flags |= more
        forks = stored(own, 0, data, name.endswith(".scattered")) + stored(own, 0xFF, resource, False)
        return record(2, own, info, 2 | flags, owner_flags, special, finder, forks)

    root = os.lstat(folder)
    private = number()
    add(1, "VOLUME", record(1, 2, root), 3, 2)
    add(2, "\0\0\0\0HFS+ Private Data", record(1, private, root), 3, private)
    add(2, ".journal", record(2, number(), root, forks=fork(0, []) * 2), 0, 0)
    for above, folders, files in os.walk(folder):
        parent = numbers[os.path.relpath(above, folder) if above != folder else ""]
        for name in sorted(folders + files):
            path = os.path.join(above, name)
            info, own, shown = os.lstat(path), number(), name.replace(":", "/")
            if name.startswith("resource:"):
                continue
            if stat.S_ISDIR(info.st_mode):
                numbers[os.path.relpath(path, folder)] = own
                flags, finder = xattrs(path, own)
                add(parent, shown, record(1, own, info, flags, finder=finder), 3, own)
            elif info.st_nlink > 1:
                if info.st_ino not in linked:
                    linked[info.st_ino] = own
                    add(private, f"iNode{own}", file(path, info, own, info.st_nlink), 0, 0)
                link = linked[info.st_ino]
                add(parent, shown, record(2, number(), info, 2, 0, link, b"hlnkhfs+" + bytes(24), fork(0, []) * 2), 0, 0)
            else:
                add(parent, shown, file(path, info, own), 0, 0)
    for records in (catalogue, attributes):
        records.sort(key=lambda one: (struct.unpack(">I", one[0][:4]), one[0][6:]) if records is catalogue else (one[0][2:6], one[0][10:]))
    overflow.sort(key=lambda one: (one[0][2:6], one[0][0], one[0][6:]))
    forks = []
    for records, size, longest in ((overflow, 4096, 10), (catalogue, node, 516), (attributes, 8192, 266)):
        data = tree(records, size, longest)
        forks.append(fork(len(data), blocks.store(data)))
    blocks.blocks += [bytes(BLOCK)]
    kinds = [data[:2] for _, data in catalogue]
    counts = (kinds.count(b"\0\2"), kinds.count(b"\0\1") - 1)
    header = b"H+" + struct.pack(">HIIIIIIIIII", 4, 1 << 8 | 1 << 13, 0, 0, 0, 0, 0, 0, *counts, BLOCK)
    header += struct.pack(">II", len(blocks.blocks), 0) + bytes(60) + fork(0, []) + forks[0] + forks[1] + forks[2] + fork(0, [])
    header = header.ljust(512, b"\0")
    blocks.blocks[0] = bytes(1024) + header + bytes(BLOCK - 1536)
    blocks.blocks[-1] = bytes(BLOCK - 1024) + header + bytes(512)
    with open(volume, "wb") as out:
        out.write(b"".join(blocks.blocks))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
