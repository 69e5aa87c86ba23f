#!/usr/bin/env python3
"""What is written in a mount: small files, a large one, a clone and a build, beside the kernel's overlayfs, fuse-overlayfs, ratarmount and a
file system through FUSE that only passes on, which is the floor.

    bench/overlay.py                         as root; 10 000 files, 1 GiB: a few minutes
    bench/overlay.py --files 1000 --mib 100  the same on a small scale
    bench/overlay.py --tarnfs PATH           another build
    bench/overlay.py --work /dev/shm         in memory: what the disk does is left out

As an ordinary user it leaves the kernel's overlayfs out, and the kernel reads and writes no file of tarnfs itself.

The floor is `passthrough_ll` of libfuse's examples, built from what Debian's libfuse3-dev brings. In each cell: seconds, and seconds of
processor time of the serving process; medians of the rounds. All that was written is compared with what was meant to be.
"""

import argparse
import contextlib
import hashlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import run

EXAMPLES = pathlib.Path("/usr/share/doc/libfuse3-dev/examples")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def floor(work):
    """The program that passes on, or nothing where it cannot be built."""
    built, source = work / "passthrough_ll", EXAMPLES / "passthrough_ll.c"
    packed = source.with_suffix(".c.gz")
    if not built.exists():
        if not (source.exists() or packed.exists()):
            return None
        with tempfile.TemporaryDirectory() as folder:
            for name in filter(pathlib.Path.is_file, EXAMPLES.iterdir()):
                target = pathlib.Path(folder) / name.name.removesuffix(".gz")
                target.write_bytes(subprocess.run(["gzip", "-dcf", str(name)], check=True, stdout=subprocess.PIPE).stdout)
            flags = subprocess.run(["pkg-config", "fuse3", "--cflags", "--libs"], stdout=subprocess.PIPE, text=True).stdout.split()
            if subprocess.run(["gcc", "-O2", f"{folder}/passthrough_ll.c", *flags, "-o", str(built)], **QUIET).returncode:
                return None
    return str(built)


def make_lower(work):
    """A folder and the same as a tar: a source tree to build, and a file to write over."""
    lower, archive = work / "lower", work / "lower.tar"
    if not archive.exists():
        shutil.rmtree(lower, ignore_errors=True)
        (lower / "source").mkdir(parents=True)
        for number in range(60):
            (lower / f"source/part{number}.c").write_text(
                "#include <stdio.h>\n#include <string.h>\n" + "".join(f"int f{number}_{line}(int x) {{ return x * {line} + {number}; }}\n" for line in range(200))
            )
        (lower / "source/main.c").write_text("int f0_1(int);\nint main(void) { return f0_1(0) != 0; }\n")
        objects = " ".join(f"part{number}.o" for number in range(60))
        (lower / "source/Makefile").write_text(f"program: main.o {objects}\n\tcc -o $@ $^\n%.o: %.c\n\tcc -O1 -c -o $@ $<\n")
        repository = lower / "repository"
        repository.mkdir()
        git = ["git", "-C", str(repository), "-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run([*git, "init", "-q"], check=True)
        for number in range(2000):
            place = repository / f"folder{number % 40}"
            place.mkdir(exist_ok=True)
            (place / f"file{number}").write_text(f"{number}\n" * (number % 97 + 1))
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "all"], check=True)
        with tarfile.open(archive, "w") as tar:
            tar.add(lower, ".")
    return lower, archive


class Place:
    """Where is written, and who serves it."""

    def __init__(self, at, pids=(), end=()):
        self.at, self.pids, self.end = at, list(pids), list(end)

    def cpu(self):
        ticks = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def wait_for(at, process, limit=30):
    end = time.monotonic() + limit
    while not os.path.ismount(at):
        if time.monotonic() > end or process.poll() not in (None, 0):
            process.kill()
            raise RuntimeError(f"{process.args[0]} does not mount")
        time.sleep(0.01)


def serve(command, at):
    """A program in the foreground."""
    process = subprocess.Popen(command, **QUIET)
    wait_for(at, process)
    unmount = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    return Place(at, [process.pid], [lambda: subprocess.run([*unmount, str(at)], check=True), lambda: process.wait(60)])


def places(arguments, folder, lower, archive):
    """Each way to write over the same files, by name: what mounts it."""
    at, upper, work = folder / "at", folder / "upper", folder / "work"

    def fresh():
        for one in (at, upper, work):
            shutil.rmtree(one, ignore_errors=True)
            one.mkdir(parents=True)

    def kernel():
        fresh()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(at)], check=True, **QUIET)
        return Place(at, end=[lambda: subprocess.run(["umount", str(at)], check=True)])

    def passing():
        fresh()
        # What is below lies in it.
        subprocess.run(["cp", "-a", f"{lower}/.", str(upper)], check=True)
        return serve([floor(arguments.work), "-f", "-o", f"source={upper},cache=auto", str(at)], at)

    def fuse_overlayfs():
        fresh()
        return serve(["fuse-overlayfs", "-f", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", str(at)], at)

    def tarnfs(source):
        def mount():
            fresh()
            return serve([arguments.tarnfs, "-f", "-w", str(upper), str(source), str(at)], at)

        return mount

    def ratarmount():
        fresh()
        return serve([peer, "-f", "-w", str(upper), str(archive), str(at)], at)

    peers = os.environ.get("TARNFS_PEERS", str(run.HERE.parent / "target" / "peers"))
    peer = shutil.which("ratarmount", path=f"{peers}/bin:{os.environ['PATH']}")
    found = {"tarnfs, tar": tarnfs(archive), "tarnfs, folder": tarnfs(lower), "kernel's overlayfs": kernel}
    if floor(arguments.work):
        found["floor"] = passing
    if shutil.which("fuse-overlayfs"):
        found["fuse-overlayfs"] = fuse_overlayfs
    if peer:
        found["ratarmount"] = ratarmount
    return found


def small_files(at, arguments):
    folder = at / "many"
    folder.mkdir()
    start = time.monotonic()
    for number in range(arguments.files):
        opened = os.open(folder / f"file{number:06}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(opened, b"some text\n")
        os.close(opened)
    seconds = time.monotonic() - start
    assert len(os.listdir(folder)) == arguments.files
    assert (folder / f"file{arguments.files - 1:06}").read_bytes() == b"some text\n"
    return seconds


def write(at, arguments, size, flags):
    """A large file, in pieces of `size`; the seconds."""
    piece = bytes(range(256)) * (size // 256)
    start = time.monotonic()
    opened = os.open(at / "large", os.O_WRONLY | flags, 0o644)
    for _ in range(arguments.mib * (1 << 20) // size):
        taken = os.write(opened, piece)
        assert taken == size
    os.close(opened)
    seconds = time.monotonic() - start
    assert os.path.getsize(at / "large") == arguments.mib << 20
    with open(at / "large", "rb") as large:
        large.seek((arguments.mib << 20) - len(piece))
        assert large.read() == piece
    return seconds


def command(at, *words):
    start = time.monotonic()
    subprocess.run(words, cwd=at, check=True, **QUIET)
    return time.monotonic() - start


CASES = {
    "small files": small_files,
    "write, 1 MiB": lambda at, arguments: write(at, arguments, 1 << 20, os.O_CREAT | os.O_TRUNC),
    "rewrite, 1 MiB": lambda at, arguments: write(at, arguments, 1 << 20, 0),
    "rewrite, 4 KiB": lambda at, arguments: write(at, arguments, 4096, 0),
    "git clone": lambda at, arguments: command(at, "git", "-c", "safe.directory=*", "clone", "-q", "--no-local", "repository", "clone"),
    "git status": lambda at, arguments: command(at / "clone", "git", "-c", "safe.directory=*", "status", "-s"),
    "build": lambda at, arguments: command(at / "source", "make", "-s"),
    "remove": lambda at, arguments: command(at, "rm", "-r", *(["many"] if (at / "many").exists() else []), "clone", "large"),
}


def digest(folder):
    """Of all that a build and a clone leave."""
    sums = hashlib.sha256()
    for path in sorted((folder / "clone").glob("folder*/*")) + [folder / "source/part7.o"]:
        sums.update(path.read_bytes())
    return sums.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tarnfs", default=str(run.HERE.parent / "target" / "release" / "tarnfs"))
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path, default=run.WORK)
    parser.add_argument("--only", help="programs, with semicolons between them")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    lower, archive = make_lower(arguments.work)
    seconds, used, digests = {}, {}, {}
    with tempfile.TemporaryDirectory(prefix="overlay-", dir=arguments.work) as folder:
        os.chmod(folder, 0o755)
        all_places = places(arguments, pathlib.Path(folder), lower, archive)
        names = [name for name in all_places if not arguments.only or name in arguments.only.split(";")]
        # One after the other in each round, so that what else the machine does meets all.
        for _ in range(arguments.rounds):
            for name in names:
                try:
                    place = all_places[name]()
                except (RuntimeError, subprocess.CalledProcessError) as error:
                    print(f"{name}: {error}", file=sys.stderr)
                    continue
                try:
                    for case, work in CASES.items():
                        before = place.cpu()
                        try:
                            took = work(place.at, arguments)
                        except (OSError, AssertionError, subprocess.CalledProcessError) as error:
                            print(f"{name}: {case}: {error!r}", file=sys.stderr)
                            continue
                        seconds.setdefault((name, case), []).append(took)
                        used.setdefault((name, case), []).append(place.cpu() - before)
                        if case == "build":
                            with contextlib.suppress(OSError):
                                digests[name] = digest(place.at)
                finally:
                    for end in place.end:
                        end()
    print("\t".join(["program", *CASES]))
    for name in names:
        cells = [
            f"{statistics.median(seconds[name, case]):.3f} / {statistics.median(used[name, case]):.2f}" if (name, case) in seconds else "-" for case in CASES
        ]
        print("\t".join([name, *cells]))
    different = {name for name, sums in digests.items() if sums != digests.get("kernel's overlayfs", sums)}
    if different:
        sys.exit(f"not the same files: {', '.join(sorted(different))}")


if __name__ == "__main__":
    main()
