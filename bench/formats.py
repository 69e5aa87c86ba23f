#!/usr/bin/env python3
"""Archives of other formats than tar: tarnfs beside the programs for each format, on the same files.

    bench/formats.py            1.75 GB of real files, 200 000 small ones, one large member; about half an hour on two cores
    bench/formats.py --small    the same on a small scale
    bench/formats.py --only zip-real,zip-many

Programs that are not installed are left out, and so are archives whose tool is not there. Results go to bench/results/ as those of run.py do.
"""

import argparse
import datetime
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import time

import archives
import report
import run

# The command that makes an archive of the folder it runs in, by suffix.
TOOLS = {
    "zip": ["zip", "-q", "-r", "-y", "-6"],
    "7z": ["7z", "a", "-bd", "-bso0", "-snl", "-mx=5", "-mmt=2"],
    "squashfs-zstd": ["mksquashfs", ".", None, "-comp", "zstd", "-no-progress", "-quiet"],
    "squashfs-xz": ["mksquashfs", ".", None, "-comp", "xz", "-no-progress", "-quiet"],
    "squashfs-gzip": ["mksquashfs", ".", None, "-comp", "gzip", "-no-progress", "-quiet"],
    "iso": ["genisoimage", "-quiet", "-R", "-o", None, "."],
    # UDF beside ISO 9660, of which programs take one.
    "udf": ["genisoimage", "-quiet", "-R", "-udf", "-o", None, "."],
    "rar-solid": ["rar", "a", "-r", "-s", "-m3", "-ol", "-y", "-idq", None],
}


# The commands that decode a whole archive to nowhere, by suffix.
WHOLE = {
    "zip": [("unzip -p", "unzip -p {archive} > /dev/null")],
    "7z": [("7z x", "7z x -so -bd -mmt=2 {archive} > /dev/null")],
    # unsquashfs only writes to a folder.
    "squashfs": [],
    "iso": [("7z x", "7z x -so -bd {archive} > /dev/null"), ("bsdtar", "bsdtar -xOf {archive} > /dev/null")],
    "udf": [("7z x", "7z x -so -bd {archive} > /dev/null")],
    "rar": [("unrar t", "unrar t -idq {archive}"), ("bsdtar", "bsdtar -xOf {archive} > /dev/null")],
}
READ_ALL = "cd {at} && find . -type f -print0 | xargs -0 cat > /dev/null"


class Kernel(run.Program):
    """The kernel's own driver on a loop device: the limit."""

    def memory(self, at, field):
        return None

    def cpu(self, at):
        return 0


def programs(tarnfs, suffix):
    found = [program for program in run.programs(tarnfs, "tarnfs") if program.name != "archivemount"]
    for name, command, suffixes in (
        ("fuse-zip", ["fuse-zip", "-r"], ("zip",)),
        ("mount-zip", ["mount-zip"], ("zip",)),
        ("squashfuse", ["squashfuse"], ("squashfs",)),
        ("fuseiso", ["fuseiso"], ("iso",)),
    ):
        if suffix.startswith(suffixes) and shutil.which(name):
            found.append(run.Program(name, command))
    for format, kind in (("squashfs", "squashfs"), ("iso", "iso9660"), ("udf", "udf")):
        if suffix.startswith(format):
            found.append(Kernel("kernel", ["mount", "-t", kind, "-o", "loop,ro"]))
    return found


def at_random(path, size):
    """Milliseconds for 64 KiB at a random place of a file, median of 200."""
    rng, times = random.Random(5), []
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(200):
            offset = rng.randrange(max(1, size - 65536))
            start = time.monotonic()
            os.pread(file.fileno(), 65536, offset)
            times.append(time.monotonic() - start)
    return statistics.median(times) * 1000


def measure_more(program, case, tree, results, limit):
    """What run.py does not ask: one large member at random places, or all files of an archive in the order of its folders."""
    archive, at = str(case.path), str(run.WORK / "mnt" / f"{program.name}-{case.name}")

    def note(figure, value, unit):
        results.append((case.name, program.name, figure, value, unit))
        shown = "-" if value is None else f"{value:.4g}"
        print(f"  {case.name:16} {program.name:14} {figure:24} {shown:>10} {unit}", flush=True)

    def mounted(figure, unit, ask):
        if program.mount(archive, at, limit)[0] is None:
            return note(figure, None, unit)
        try:
            note(figure, ask(), unit)
        finally:
            program.unmount(at)

    if tree == "large":

        def after_one_read():
            seconds, _ = run.timed(["dd", f"if={at}/large", "of=/dev/null", "bs=1M"], limit)
            archives.drop_cache(f"{at}/large")
            return None if seconds is None else at_random(f"{at}/large", case.large_size)

        mounted("64 KiB at random, once read", "ms", after_one_read)
        mounted("64 KiB at random, mounted again", "ms", lambda: at_random(f"{at}/large", case.large_size))
    else:
        mounted("all files", "s", lambda: run.timed(["bash", "-c", READ_ALL.format(at=at)], limit)[0])


def measure_whole(suffix, case, results, limit):
    """The plain programs for the format, which need no mount."""
    for name, command in WHOLE[suffix.split("-")[0]]:
        if not shutil.which(name.split()[0]):
            continue
        seconds, _ = run.timed(["bash", "-c", command.format(archive=case.path)], limit)
        results.append((case.name, name, "all files", seconds, "s"))
        print(f"  {case.name:16} {name:14} all files {seconds} s", flush=True)


def pack(suffix, folder, path):
    tool = TOOLS[suffix]
    part = path.with_name(f"part-{path.name}")
    part.unlink(missing_ok=True)
    if None in tool:
        command = [str(part) if argument is None else argument for argument in tool]
    else:
        command = [*tool, str(part), "."]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    part.rename(path)


def trees(folder, small):
    """Name of each tree, what it is, how it is made, and what of a Case is known of it."""
    real = archives.make(folder, small, "real")[0]

    def unpack(at):
        subprocess.run(["tar", "-xf", real.path, "-C", at], check=True)

    def many(at):
        rng = random.Random(3)
        for number in range(2_000 if small else 200_000):
            name = at / f"{number // 1000:04d}" / f"{number:06d}.txt"
            name.parent.mkdir(exist_ok=True)
            name.write_bytes(b"%d " % number * rng.randrange(10, 200))

    def large(at):
        with tarfile.open(real.path) as tar, open(at / "large", "wb") as out:
            left = (32 if small else 1024) << 20
            for member in tar:
                if member.isreg() and left > 0:
                    bytes_ = tar.extractfile(member).read(left)
                    left -= len(bytes_)
                    out.write(bytes_)

    yield "real", real.about, unpack, dict(sample=real.sample, md5=real.md5, large=real.large, large_size=real.large_size)
    yield "many", "small files", many, {}
    yield "large", "one large file", large, dict(large="large", large_size=(32 if small else 1024) << 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", help="archives (zip-real, 7z-real, squashfs-zstd-real, iso-real, udf-real, rar-solid-real, zip-many, ...), with commas between them")
    parser.add_argument("--tarnfs", default=str(run.HERE.parent / "target" / "release" / "tarnfs"))
    parser.add_argument("--limit", type=float, help="seconds that one step may take (400; small: 20)")
    parser.add_argument("--results", type=pathlib.Path)
    arguments = parser.parse_args()
    limit = arguments.limit or (20 if arguments.small else 400)
    if os.geteuid() != 0:
        sys.exit("bench/formats.py: needs root, for page caches and mounts")
    os.environ["XDG_CACHE_HOME"] = str(run.WORK / "cache")
    folder = run.WORK / ("small" if arguments.small else "full")
    date = datetime.date.today().isoformat()
    results_folder = arguments.results or run.HERE / "results" / f"{date}-{os.cpu_count()}-cores-formats{'-small' if arguments.small else ''}"
    results, cases, seen = [], [], {}
    for tree, about, make, more in trees(folder, arguments.small):
        at = folder / f"tree-{tree}"
        for suffix, tool in TOOLS.items():
            name = f"{suffix}-{tree}"
            if arguments.only and name not in arguments.only.split(",") or not shutil.which(tool[0]):
                continue
            path = folder / f"{tree}.{suffix.replace('squashfs-', '')}.{'iso' if suffix == 'udf' else suffix.split('-')[0]}"
            if not path.exists():
                if not at.exists():
                    at.mkdir(parents=True)
                    make(at)
                pack(suffix, at, path)
            case = archives.Case(name, about, path, **more)
            cases.append(case)
            print(f"{name}: {path.stat().st_size / 2**20:.0f} MiB, {about}", flush=True)
            for program in programs(arguments.tarnfs, suffix):
                seen[program.name] = program
                run.measure(program, case, results, limit, 1 if arguments.small else 3)
                measure_more(program, case, tree, results, limit)
            measure_whole(suffix, case, results, limit)
            report.write(results_folder, results, cases, list(seen.values()))
        shutil.rmtree(at, ignore_errors=True)
    print(f"written to {results_folder}")


if __name__ == "__main__":
    main()
