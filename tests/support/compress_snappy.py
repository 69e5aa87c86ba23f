# Compresses its input as python3-snappy does, whose own checksum fails with Python 3.10 and later (Debian 12).
import sys
from snappy import snappy
table = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    table.append(byte)
def crc(data):
    sum = 0xFFFFFFFF
    for byte in data:
        sum = sum >> 8 ^ table[(sum ^ byte) & 0xFF]
    return sum ^ 0xFFFFFFFF
snappy._crc32c = crc
snappy.stream_compress(sys.stdin.buffer, sys.stdout.buffer)
