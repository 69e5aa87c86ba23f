"""Writes a disk image of macOS (UDIF) with the bytes of a disk.

    dmg.py DISK IMAGE METHOD [SECTORS]

METHOD is raw, zlib, bzip2, lzma, lzfse or adc; blocks have so many sectors. What is zeros has no data.
"""

import base64
import bz2
import lzma
import struct
import sys
import zlib

sys.dont_write_bytecode = True
from hfsplus import lzfse, runs

SECTOR = 512


def adc(data):
    """Literals, and both kinds of matches."""
    out = bytearray()
    for literals, distance, length in runs(data, 67, 65536):
        for start in range(0, len(literals), 128):
            run = literals[start : start + 128]
            out.append(0x7F + len(run))
            out.extend(run)
        distance -= 1
        if not length:
            continue
        if length <= 18 and distance < 1024:
            out.extend([length - 3 << 2 | distance >> 8, distance & 0xFF])
        else:
            out.extend([0x40 | length - 4, distance >> 8, distance & 0xFF])
    return bytes(out)


def main(disk, image, method, sectors=512):
    packers = {
        "raw": (1, bytes),
        "zlib": (0x80000005, zlib.compress),
        "bzip2": (0x80000006, bz2.compress),
        "lzfse": (0x80000007, lzfse),
        "lzma": (0x80000008, lzma.compress),
        "adc": (0x80000004, adc),
    }
    kind, pack = packers[method]
    with open(disk, "rb") as opened:
        data = opened.read()
    assert len(data) % SECTOR == 0
    stored, blocks = bytearray(), []
    for at in range(0, len(data), sectors * SECTOR):
        part = data[at : at + sectors * SECTOR]
        number, count = at // SECTOR, len(part) // SECTOR
        if not any(part):
            blocks.append((2, number, count, len(stored), 0))
            continue
        packed = pack(part)
        of, packed = (kind, packed) if len(packed) < len(part) else (1, part)
        blocks.append((of, number, count, len(stored), len(packed)))
        stored += packed
    # Two tables, as a disk with partitions has several.
    half, tables = len(blocks) // 2, ""
    for own in (blocks[half:], blocks[:half]):
        if not own:
            continue
        first, end = own[0][1], own[-1][1] + own[-1][2]
        table = b"mish" + struct.pack(">IQQQII", 1, first, end - first, 0, sectors + 8, 0) + bytes(24) + bytes(136)
        table += struct.pack(">I", len(own) + 1)
        for of, number, count, at, length in own + [(0xFFFFFFFF, end, 0, len(stored), 0)]:
            table += struct.pack(">IIQQQQ", of, 0, number - first, count, at, length)
        text = base64.encodebytes(table).decode()
        tables += f"<dict><key>Attributes</key><string>0x0050</string><key>Data</key><data>\n{text}</data><key>ID</key><string>0</string></dict>\n"
    plist = f'<?xml version="1.0" encoding="UTF-8"?>\n<plist version="1.0"><dict><key>resource-fork</key><dict><key>blkx</key><array>\n{tables}</array></dict></dict></plist>\n'.encode()
    trailer = b"koly" + struct.pack(">IIIQQQQQII", 4, 512, 1, 0, 0, len(stored), 0, 0, 1, 1) + bytes(16)
    trailer += struct.pack(">III", 2, 32, zlib.crc32(stored)).ljust(136, b"\0") + struct.pack(">QQ", len(stored), len(plist)) + bytes(120)
    trailer += bytes(136) + struct.pack(">IQ", 1, len(data) // SECTOR)
    with open(image, "wb") as out:
        out.write(bytes(stored) + plist + trailer.ljust(512, b"\0"))


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
