"""Writes HFS+ volumes that make a reader work or remember more than they are worth.

    hfsplus_hostile.py attributes VOLUME    500 names of one file, whose attributes are 2 MB in the tree
    hfsplus_hostile.py nodes VOLUME         100 files, for each of which 70 nodes of attributes are read that lie in turn
                                            in two parts of 16 MiB
"""

import struct
import sys

sys.dont_write_bytecode = True
from hfsplus import BLOCK, FROM_1904, fork, text, tree

PART = 16 << 20
NODE = 512


def record(kind, own, mode, flags, forks):
    head = struct.pack(">HHII5I", kind, flags, 0, own, *[FROM_1904] * 5)
    return head + struct.pack(">IIBBHI", 0, 0, 0, 0, mode, 1) + bytes(40) + forks


def catalogue(numbers):
    key = lambda parent, name: struct.pack(">I", parent) + text(name)
    files = [(key(2, f"f{at:05}"), record(2, own, 0o100644, 2 | 4, fork(0, []) * 2)) for at, own in enumerate(numbers)]
    return tree([(key(1, "V"), record(1, 2, 0o40755, 0, b""))] + files, 8192, 516)


def chain():
    """Empty leaves that follow each other, in turn in one part and in the other."""
    at = [1 + 16 * (number // 2) + number % 2 * (PART // NODE) for number in range(70)]
    nodes = bytearray(2 * PART)
    for own, following in zip(at, at[1:] + [0]):
        nodes[own * NODE : own * NODE + 14] = struct.pack(">IIbBHH", following, 0, -1, 1, 0, 0)
        nodes[(own + 1) * NODE - 2 : (own + 1) * NODE] = struct.pack(">H", 14)
    header = struct.pack(">HIIIIHHIIHIBBI", 1, 1, 0, 1, 0, NODE, 266, 2 * PART // NODE, 0, 0, 0, 0, 0, 6)
    nodes[:14] = struct.pack(">IIbBHH", 0, 0, 1, 0, 3, 0)
    nodes[14 : 14 + len(header)] = header
    return bytes(nodes)


def attributes():
    values = struct.pack(">IIII", 0x10, 0, 0, 32000) + bytes(32000)
    return tree([(struct.pack(">HII", 0, 100, 0) + text(f"a{at:02}"), values) for at in range(60)], 32768, 266)


def main(what, volume):
    names = catalogue([100] * 500 if what == "attributes" else range(100, 200))
    values = attributes() if what == "attributes" else chain()
    places, blocks = [], [b""]
    for data in (names, values):
        if what == "nodes":
            # Each begins in a part of its own.
            blocks += [b""] * (-len(blocks) % (PART // BLOCK))
        count = -(-len(data) // BLOCK)
        places.append(fork(len(data), [(len(blocks), count)]))
        blocks += [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    blocks.append(b"")
    header = b"H+" + struct.pack(">HIIIIIIIIII", 4, 1 << 8, 0, 0, 0, 0, 0, 0, 1, 1, BLOCK) + struct.pack(">II", len(blocks), 0)
    header += bytes(60) + fork(0, []) * 2 + places[0] + places[1] + fork(0, [])
    blocks[0] = bytes(1024) + header
    with open(volume, "wb") as out:
        out.write(b"".join(block.ljust(BLOCK, b"\0") for block in blocks))


if __name__ == "__main__":
    main(*sys.argv[1:])
