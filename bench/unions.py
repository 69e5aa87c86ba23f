#!/usr/bin/env python3
"""Unions of archives: how long mounting takes with the indexes there, and a first `find` over all, beside the same files in one archive.

    bench/unions.py                          20 archives of 50 000 files, a quarter of an hour, 2 GB of disk
    bench/unions.py --files 1000             the same on a small scale
    bench/unions.py --tarnfs PATH            another build
    bench/unions.py --without-peers          only tarnfs

Three shapes: archives with folders of their own, archives that all have the same folders with different files in them, and archives with all of
their files in one folder. Medians of three; of the peers, for which `find` takes minutes, one run.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import run

FOLDER = 100
SHAPES = {
    "own folders": lambda archive, file: f"archive{archive:02}/folder{file // FOLDER:04}/file{file:06}",
    "same folders": lambda archive, file: f"folder{file // FOLDER:04}/file{file:06}-{archive:02}",
    "one folder": lambda archive, file: f"all/file{file:06}-{archive:02}",
}


def member(path):
    """An empty file in ustar."""
    block = bytearray(512)
    block[: len(path)] = path.encode()
    block[100:148] = b"0000644\0000001750\0000001750\00000000000000\00014500000000\0"
    block[148:156] = b" " * 8
    block[156:157] = b"0"
    block[257:265] = b"ustar\00000"
    block[148:155] = b"%06o\0" % sum(block)
    return bytes(block)


def make(folder, shape, archives, files):
    """The parts, and one archive with all that is in them. Made once."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [folder / f"part{archive:02}.tar" for archive in range(archives)]
    whole = folder / "whole.tar"
    if not whole.exists():
        unfinished = folder / "unfinished"
        with open(unfinished, "wb") as all_of_it:
            for archive, part in enumerate(parts):
                blocks = b"".join(member(SHAPES[shape](archive, file)) for file in range(files))
                part.write_bytes(blocks + bytes(10240))
                all_of_it.write(blocks)
            all_of_it.write(bytes(10240))
        unfinished.rename(whole)
    return parts, whole


def measure(name, command, archives, expected, rounds, limit):
    """Seconds of mounting and of `find`, and the memory afterwards in MiB."""
    program = run.Program(name, [*command, *map(str, archives[:-1])])
    mounts, finds, memory = [], [], None
    for _ in range(rounds):
        at = tempfile.mkdtemp(prefix="tarnfs-bench-")
        try:
            seconds, _ = program.mount(str(archives[-1]), at, limit)
            if seconds is None:
                return None
            mounts.append(seconds)
            start = time.monotonic()
            try:
                found = subprocess.run(["find", at, "-type", "f", "-size", "-1G"], stdout=subprocess.PIPE, timeout=limit, check=True).stdout
            except subprocess.TimeoutExpired:
                return statistics.median(mounts), None, None
            finds.append(time.monotonic() - start)
            assert found.count(b"\n") == expected, f"{name}: {found.count(bytes([10]))} files, not {expected}"
            memory = (program.memory(at, "VmRSS") or 0) / 1024
        finally:
            program.unmount(at)
    return statistics.median(mounts), statistics.median(finds), memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tarnfs", default=str(run.HERE.parent / "target" / "release" / "tarnfs"))
    parser.add_argument("--archives", type=int, default=20)
    parser.add_argument("--files", type=int, default=50_000, help="in each archive")
    parser.add_argument("--work", type=pathlib.Path, default=run.WORK)
    parser.add_argument("--limit", type=int, default=600, help="seconds for one step")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--without-peers", action="store_true")
    arguments = parser.parse_args()
    peers = os.environ.get("TARNFS_PEERS", str(run.HERE.parent / "target" / "peers"))
    ratarmount = shutil.which("ratarmount", path=f"{peers}/bin:{os.environ['PATH']}")
    print("shape\tprogram\tmount (s)\tfind (s)\tmemory (MiB)")
    for shape in arguments.shapes.split(","):
        folder = arguments.work / f"union-{shape.replace(' ', '-')}-{arguments.archives}x{arguments.files}"
        parts, whole = make(folder, shape, arguments.archives, arguments.files)
        total = arguments.archives * arguments.files
        rows = [("tarnfs, one archive", [arguments.tarnfs], [whole], 3), ("tarnfs, union", [arguments.tarnfs], parts, 3)]
        if ratarmount and not arguments.without_peers:
            # Its sidecars would serve both.
            rows.append(("ratarmount, union", [ratarmount, "-P", "0"], parts, 1))
        for name, command, archives, rounds in rows:
            for archive in archives:
                run.Program.remove_indexes(archive)
            # Makes the indexes.
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            if command[0] == arguments.tarnfs:
                subprocess.run([*command, "index", *map(str, archives)], check=True, **quiet)
            else:
                subprocess.run([*command, "--no-mount", *map(str, archives)], check=True, **quiet)
            measured = measure(name, command, archives, total, rounds, arguments.limit)
            shown = ["-" if number is None else f"{number:.3f}" for number in measured or (None,) * 3]
            print("\t".join([shape, name, *shown]), flush=True)


if __name__ == "__main__":
    main()
