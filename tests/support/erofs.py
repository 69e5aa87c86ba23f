"""Writes an EROFS image with what old versions of mkfs.erofs do not write: MicroLZMA, deflate and zstd, fragments, data
that several files have parts of, rotated blocks, names of attributes with long starts. And the files that are in it.

    erofs.py IMAGE FOLDER
"""

import lzma
import os
import struct
import subprocess
import sys
import zlib

BLOCK = 4096
EXTENT = 65536
LZMA, DEFLATE, ZSTD = 1, 2, 3
PLAIN, HEAD, GOES_ON = 0, 1, 2
PARTIAL = 1 << 15
IS_COUNT = 1 << 11
image_path, folder = sys.argv[1:]
os.makedirs(folder)


def packed(data, method):
    if method == LZMA:
        filters = [{"id": lzma.FILTER_LZMA1, "dict_size": EXTENT, "lc": 3, "lp": 0, "pb": 2}]
        raw = lzma.compress(data, format=lzma.FORMAT_RAW, filters=filters)
        return bytes([~0x5D & 0xFF]) + raw[1:]
    if method == DEFLATE:
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        return deflate.compress(data) + deflate.flush()
    with open(image_path + ".part", "wb") as part:
        part.write(data)
    return subprocess.run(["zstd", "-q", "-19", "--no-check", "-c", image_path + ".part"], capture_output=True, check=True).stdout


class Image:
    def __init__(self):
        self.blocks = bytearray(64 * BLOCK)  # The superblock, and inodes from block 1 on.
        self.slot = 2  # A folder does not list what is called 0.

    def store(self, data, in_front=False):
        """Puts data into blocks of their own, behind zeros, and says in which, and in how many."""
        number = len(self.blocks) // BLOCK
        padding = bytes(-len(data) % BLOCK)
        self.blocks += data + padding if in_front else padding + data
        return number, (len(data) + len(padding)) // BLOCK

    def inode(self, mode, size, layout, place=0, attributes=b"", tail=b"", links=1):
        """Puts an inode of the long form, its attributes and what follows it into the next slots."""
        units = 0 if not attributes else (len(attributes) - 12) // 4 + 1
        inode = struct.pack("<HHHHQIIIIQII16x", 1 | layout << 1, units, mode, 0, size, place, self.slot + 1, 7, 8, 1700000000, 5, links)
        body = inode + attributes
        if layout in (1, 3):
            body += bytes(-len(body) % 8)
        body += tail
        number, at = self.slot, BLOCK + self.slot * 32
        assert layout != 2 or at % BLOCK + len(body) <= BLOCK, "an end that lies across blocks"
        self.blocks[at : at + len(body)] = body
        self.slot += -(-len(body) // 32)
        return number


def index(extents, size, method, advice, fragment=0):
    """The index of extents: start, kind, block, count of blocks, flags."""
    clusters = -(-size // BLOCK)
    entries, heads = [None] * clusters, {start // BLOCK: (start, *rest) for start, *rest in extents}
    assert len(heads) == len(extents)
    order = sorted(heads)
    for number in range(clusters):
        if number in heads:
            start, kind, block, count, flags = heads[number]
            entries[number] = struct.pack("<HHI", kind | flags, start % BLOCK, block)
            continue
        before = max(head for head in order if head < number)
        behind = min([head for head in order if head > number], default=clusters)
        first = heads[before][3] | IS_COUNT if number == before + 1 else number - before
        entries[number] = struct.pack("<HHHH", GOES_ON, BLOCK, first, behind - number)
    if clusters - 1 not in heads and size % BLOCK:
        entries[-1] = struct.pack("<HHI", PLAIN, size % BLOCK, 0)
        if clusters - 2 in heads:
            assert heads[clusters - 2][3] == 1
    return struct.pack("<IHBB8x", fragment, advice, method, 0) + b"".join(entries)


image = Image()
text = "".join(f"{number * 2654435761 % 2**32} " for number in range(30000)).encode()
files = {}


def write(name, data):
    files[name] = data
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


LONG_BLOCKS = 2
nodes = {}
first_blocks = {}
for name, method in (("lzma", LZMA), ("deflate", DEFLATE), ("zstd", ZSTD)):
    data = text[: 3 * EXTENT + 1234]
    extents = []
    for start in range(0, len(data), EXTENT):
        block, count = image.store(packed(data[start : start + EXTENT], method))
        extents.append((start, HEAD, block, count, PARTIAL if method == LZMA else 0))
        first_blocks.setdefault(method, (block, count))
    write(name, data)
    nodes[name] = image.inode(0o100644, len(data), 1, tail=index(extents, len(data), method, LONG_BLOCKS))

# Parts of what other files have, too.
block, count = first_blocks[ZSTD]
data = text[:20000] + text[:9999]
extents = [(0, HEAD, block, count, PARTIAL), (20000, HEAD, block, count, PARTIAL)]
write("parts", data)
nodes["parts"] = image.inode(0o100600, len(data), 1, tail=index(extents, len(data), ZSTD, LONG_BLOCKS))

# Fragments: the ends of files and all of others, and starts of names.
start_of_names = struct.pack("<HB", 1 + len(b"a.long.start."), 1) + b"a.long.start."
other_start = struct.pack("<HB", 1 + 4, 4) + b"own."
starts = start_of_names + bytes(-len(start_of_names) % 4) + other_start + bytes(-len(other_start) % 4)
fragments = text[:30000] + bytes(-30000 % 4) + starts + os.urandom(3000) + text[50000:130000]
extents = []
for start in range(0, len(fragments), EXTENT):
    block, count = image.store(packed(fragments[start : start + EXTENT], ZSTD))
    extents.append((start, HEAD, block, count, 0))
packed_node = image.inode(0o100644, len(fragments), 1, tail=index(extents, len(fragments), ZSTD, LONG_BLOCKS))

for name, start, length in (("fragment", 100, 5000), ("over", 60000, 20000), ("last", len(fragments) - 1, 1)):
    write(name, fragments[start : start + length])
    nodes[name] = image.inode(0o100644, length, 1, tail=struct.pack("<Q", start | 1 << 63))

data = text[:EXTENT] + fragments[40000:44321]
block, count = first_blocks[DEFLATE]
write("end", data)
extents = [(0, HEAD, block, count, 0), (EXTENT, HEAD, 0, 1, 0)]
nodes["end"] = image.inode(0o100644, len(data), 1, tail=index(extents, len(data), DEFLATE, LONG_BLOCKS | 0x20, 40000))

# Blocks that are stored as they are: bytes lie where they would in a block of the file.
noise = os.urandom(3500)
data = text[:5000] + noise + text[:4000]
block, count = image.store(packed(data[:5000], DEFLATE))
turned = bytearray(BLOCK)
for place, byte in enumerate(noise):
    turned[(5000 + place) % BLOCK] = byte
noise_block, _ = image.store(bytes(turned), in_front=True)
last_block, last_count = image.store(packed(data[8500:], DEFLATE))
extents = [(0, HEAD, block, 1, 0), (5000, PLAIN, noise_block, 1, 0), (8500, HEAD, last_block, 1, 0)]
assert (count, last_count) == (1, 1)
write("turned", data)
nodes["turned"] = image.inode(0o100644, len(data), 1, tail=index(extents, len(data), DEFLATE, LONG_BLOCKS | 0x10))


def attribute(kind, name, value):
    entry = struct.pack("<BBH", len(name), kind, len(value)) + name + value
    return entry + bytes(-len(entry) % 4)


attributes = bytes(12) + attribute(0x80, b"name", b"value") + attribute(0x81, b"name", b"other") + attribute(1, b"x", b"y")
write("named", b"named")
nodes["named"] = image.inode(0o100644, 5, 2, attributes=attributes, tail=b"named")

names = sorted([(b".", None), (b"..", None)] + [(name.encode(), number) for name, number in nodes.items()])
root = image.slot
records, strings = b"", b""
for name, number in names:
    at = len(names) * 12 + len(strings)
    records += struct.pack("<QHBB", root if number is None else number, at, 2 if number is None else 1, 0)
    strings += name
listing = records + strings
image.inode(0o040755, len(listing), 2, tail=listing, links=2)
assert image.slot * 32 < 63 * BLOCK

blocks = image.blocks
methods = [(DEFLATE, struct.pack("<B5x", 15)), (ZSTD, struct.pack("<BB4x", 0, 8))]
methods = [(LZMA, struct.pack("<IH8x", EXTENT, 0))] + methods
at = 1024 + 128
for _, settings in methods:
    at += -at % 4
    blocks[at : at + 2 + len(settings)] = struct.pack("<H", len(settings)) + settings
    at += 2 + len(settings)
features = 0x1 | 0x2 | 0x20 | 0x40
start_at = (30000 + -30000 % 4) // 4
struct.pack_into("<IIIBBHQQIIII16s16sIHHHBBIQ", blocks, 1024, 0xE0F5E1E2, 0, 2, 12, 0, root, len(nodes) + 1, 1600000000, 0, len(blocks) // BLOCK, 1, 0,
                 b"u" * 16, b"label", features, sum(1 << method for method, _ in methods), 0, 0, 0, 2, start_at, packed_node)
with open(image_path, "wb") as file:
    file.write(blocks)
os.path.exists(image_path + ".part") and os.remove(image_path + ".part")
