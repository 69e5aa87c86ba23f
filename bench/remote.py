#!/usr/bin/env python3
"""Archives behind a URL: nginx on loopback, and before it a proxy of this bench that adds 40 ms to each round trip and lets 200 Mbit/s through.

    bench/remote.py                 a 1.7 GB tar in zstd and gzip, and one file of 1 GiB: about half an hour; as root
    bench/remote.py --small         the same on a small scale, about a minute
    bench/remote.py --tarnfs PATH   another build
    bench/remote.py --out DIR       where the tables go

Beside tarnfs runs ratarmount, if it is installed with fsspec for HTTP. Each has its index beside the archive on the server, and an empty cache of its own
at each first mount. The proxy counts requests and the bytes of answers. What is read is compared with what was put in.
"""

import argparse
import asyncio
import datetime
import hashlib
import multiprocessing
import os
import pathlib
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time

import archives
import run

ROUND_TRIP = 0.040
BYTES_PER_SECOND = 200e6 / 8
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
LIMIT = 900


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port):
    end = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


class Line:
    """A proxy that is as far away as a server elsewhere. In a process of its own, so that nobody else's work delays it."""

    def __init__(self, server):
        self.port = free_port()
        self.requests, self.bytes = multiprocessing.Value("q"), multiprocessing.Value("q")
        self.process = multiprocessing.Process(target=lambda: asyncio.run(self.serve(server)), daemon=True)
        self.process.start()
        wait_for(self.port)

    async def serve(self, server):
        self.free = 0.0
        accept = lambda reader, writer: self.connection(reader, writer, server)
        async with await asyncio.start_server(accept, "127.0.0.1", self.port, limit=1 << 18) as listener:
            await listener.serve_forever()

    async def connection(self, reader, writer, server):
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", server, limit=1 << 18)
        except OSError:
            return writer.close()
        # The handshake takes a round trip before anything is asked.
        start = time.monotonic() + ROUND_TRIP
        pumps = [asyncio.create_task(pump) for pump in (self.pump(reader, there_writer, start, True), self.pump(there_reader, writer, start, False))]
        # Whoever goes away in the middle takes the other side along.
        await asyncio.wait(pumps, return_when=asyncio.FIRST_EXCEPTION)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for side in (writer, there_writer):
            side.close()

    async def pump(self, reader, writer, start, asks):
        # No more on the way than a window of 2 MiB.
        queue = asyncio.Queue(32)

        async def deliver():
            while (item := await queue.get()) is not None:
                due, data = item
                if (left := due - time.monotonic()) > 0:
                    await asyncio.sleep(left)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

        async def take():
            while data := await reader.read(1 << 16):
                due = max(time.monotonic(), start)
                if asks:
                    self.requests.value += data.count(b" HTTP/1.1\r\n")
                else:
                    self.bytes.value += len(data)
                    due = self.free = max(due, self.free) + len(data) / BYTES_PER_SECOND
                await queue.put((due + ROUND_TRIP / 2, data))
            await queue.put(None)

        both = asyncio.gather(take(), deliver())
        try:
            await both
        finally:
            both.cancel()

    def counted(self):
        return self.requests.value, self.bytes.value

    def end(self):
        self.process.kill()
        self.process.join()


class Server:
    """nginx, serving one folder."""

    def __init__(self, folder):
        self.port, self.at = free_port(), tempfile.mkdtemp(prefix="bench-nginx-")
        paths = "".join(f"{what}_temp_path {self.at}/{what}; " for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;" if os.geteuid() == 0 else ""
        text = f"""{user} worker_processes 1; pid {self.at}/pid; error_log {self.at}/error.log; events {{}}
            http {{ access_log off; sendfile on; {paths} server {{ listen 127.0.0.1:{self.port}; root {folder}; }} }}"""
        pathlib.Path(f"{self.at}/conf").write_text(text)
        self.process = subprocess.Popen(["nginx", "-p", self.at, "-e", f"{self.at}/error.log", "-c", f"{self.at}/conf", "-g", "daemon off;"], **QUIET)
        wait_for(self.port)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        shutil.rmtree(self.at, ignore_errors=True)


class Mount:
    """One program that has mounted one URL."""

    def __init__(self, program, url, folder, fresh=True):
        self.at = pathlib.Path(folder) / "at"
        self.home = pathlib.Path(folder) / "home"
        if fresh:
            shutil.rmtree(self.home, ignore_errors=True)
        for one in (self.at, self.home / ".cache"):
            one.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ, HOME=str(self.home), XDG_CACHE_HOME=str(self.home / ".cache"))
        words = [word.replace("URL", url) for word in program]
        start = time.monotonic()
        self.process = subprocess.Popen([*words, "-f", url, str(self.at)], env=environment, **QUIET)
        while not os.path.ismount(self.at):
            if self.process.poll() is not None or time.monotonic() - start > LIMIT:
                self.process.kill()
                self.process.wait()
                raise RuntimeError(f"{words[0]} does not mount {url}")
            time.sleep(0.002)
        os.listdir(self.at)
        self.seconds = time.monotonic() - start

    def __enter__(self):
        return self

    def __exit__(self, *_):
        command = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
        for _ in range(100):
            if subprocess.run([*command, str(self.at)], **QUIET).returncode == 0:
                break
            time.sleep(0.1)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def read_all(path):
    """Seconds and bytes of a sequential read."""
    total, start = 0, time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while (data := file.read(1 << 20)):
            total += len(data)
    return time.monotonic() - start, total


def curl(url, most):
    start = time.monotonic()
    out = subprocess.run(["curl", "-s", "-o", "/dev/null", "-r", f"0-{most - 1}", url, "-w", "%{size_download}"], stdout=subprocess.PIPE, check=True)
    return int(out.stdout) / (time.monotonic() - start)


class Table:
    def __init__(self, out):
        self.out, self.rows = out, []
        self.tsv = open(out / "results.tsv", "w")
        self.note("archive", "figure", "program", "value", "requests", "MiB fetched")

    def note(self, *row):
        print("  ".join(f"{cell:<14}" if number else f"{cell:<10}" for number, cell in enumerate(map(str, row))), flush=True)
        print(*row, sep="\t", file=self.tsv, flush=True)
        self.rows.append(row)

    def write(self, head):
        head_row, *rows = self.rows
        lines = [head, "", "| " + " | ".join(head_row) + " |", "| --- | --- | --- | ---: | ---: | ---: |"]
        lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
        (self.out / "README.md").write_text("\n".join(lines) + "\n")


def counting(line, work):
    """What `work` returns, and the requests and MiB that it has cost."""
    before = line.counted()
    done = work()
    requests, fetched = (now - then for now, then in zip(line.counted(), before))
    return done, requests, f"{fetched / 2**20:.1f}"


def make_indexes(case, tarnfs, ratarmount):
    for suffix, command in ((".tarnfs.sqlite", [tarnfs, "index", "--index-folders=", str(case.path)]), (".index.sqlite", ratarmount and [ratarmount, "--no-mount", str(case.path)])):
        if command and not os.path.exists(f"{case.path}{suffix}"):
            # ratarmount would take the time of a file that another one has.
            subprocess.run(command, check=suffix == ".tarnfs.sqlite", **QUIET)


def sums(at, names):
    wanted = b"".join(os.fsencode(f"{at}/{name}") + b"\0" for name in names)
    start = time.monotonic()
    done = subprocess.run(["xargs", "-0", "md5sum"], input=wanted, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT, check=True)
    got = {os.fsdecode(line.split(b"  ", 1)[1]).removeprefix(f"{at}/"): line[:32] for line in done.stdout.splitlines()}
    return time.monotonic() - start, got


def small_file(case):
    """A file of about 10 KiB, and its sum."""
    with tarfile.open(case.plain) as tar:
        members = [member for member in tar if member.isreg() and 9000 <= member.size <= 11000 and member.name.isprintable()]
        member = members[len(members) // 2]
        return member.name, hashlib.file_digest(tar.extractfile(member), "md5").hexdigest().encode()


def metadata(case, programs, line, table, folder):
    """Everything but long reads, of one compressed archive."""
    url, name = f"http://127.0.0.1:{line.port}/{case.path.name}", case.path.name
    one, its_sum = small_file(case)
    for program, command in programs.items():

        def note(figure, seconds, requests, fetched):
            table.note(name, figure, program, f"{seconds:.2f} s", requests, fetched)

        def read(mount):
            start = time.monotonic()
            _, got = sums(mount.at, [one])
            assert got[one] == its_sum, f"{one} has other bytes"
            return time.monotonic() - start

        try:
            mount, requests, fetched = counting(line, lambda: Mount(command, url, folder))
            with mount:
                note("first mount", mount.seconds, requests, fetched)
                note("then one file of 10 KiB", *counting(line, lambda: read(mount)))
            mount, requests, fetched = counting(line, lambda: Mount(command, url, folder))
            with mount:
                for figure in ("find, first", "find, second"):
                    (seconds, listing), requests, fetched = counting(line, lambda: run.find(str(mount.at), LIMIT))
                    assert seconds is not None, "find fails"
                    note(figure, seconds, requests, fetched)
            with Mount(command, url, folder) as mount:
                (seconds, got), requests, fetched = counting(line, lambda: sums(mount.at, case.sample))
                note(f"{len(case.sample)} random files", seconds, requests, fetched)
                wrong = [file for file, total in case.md5.items() if got.get(file) != total]
                assert not wrong, f"{len(wrong)} files have other bytes"
            mount, requests, fetched = counting(line, lambda: Mount(command, url, folder, fresh=False))
            with mount:
                note("next mount", mount.seconds, requests, fetched)
        except (RuntimeError, subprocess.SubprocessError, AssertionError, OSError) as error:
            table.note(name, "failed", program, str(error).replace("|", "/")[:100], "-", "-")


def sequential(case, programs, line, server, table, folder):
    """A long file of a plain tar, over the line and without it."""
    name = case.path.name
    for where, port in ((f"{ROUND_TRIP * 1e3:.0f} ms, 200 Mbit/s", line.port), ("no delay", server.port)):
        url = f"http://127.0.0.1:{port}/{name}"
        table.note(name, f"sequential, {where}", "curl", f"{curl(url, case.large_size) / 1e6:.1f} MB/s", 1, f"{case.large_size / 2**20:.1f}")
        for program, command in programs.items():
            try:
                with Mount(command, url, folder) as mount:
                    (seconds, total), requests, fetched = counting(line, lambda: read_all(mount.at / case.large))
                    assert total == case.large_size, f"{total} bytes"
                    counted = (requests, fetched) if port == line.port else ("-", "-")
                    table.note(name, f"sequential, {where}", program, f"{total / seconds / 1e6:.1f} MB/s", *counted)
            except (RuntimeError, AssertionError, OSError) as error:
                table.note(name, "failed", program, str(error).replace("|", "/")[:100], "-", "-")
    with Mount([programs["tarnfs"][0]], str(case.path), folder) as mount:
        seconds, total = read_all(mount.at / case.large)
        table.note(name, "sequential, local file", "tarnfs", f"{total / seconds / 1e6:.1f} MB/s", "-", "-")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="archives of some 40 MB")
    parser.add_argument("--tarnfs", default=str(run.HERE.parent / "target" / "release" / "tarnfs"), help="the program")
    parser.add_argument("--work", type=pathlib.Path, default=run.WORK, help="where the archives are made and kept")
    parser.add_argument("--out", type=pathlib.Path, help="the folder for the tables")
    arguments = parser.parse_args()
    if not shutil.which("nginx") or not shutil.which("curl"):
        sys.exit("nginx and curl are needed: tests/prepare.sh and bench/peers.sh install them")
    work = arguments.work / ("small" if arguments.small else "full")
    machine = f"{datetime.date.today()}-{os.cpu_count()}-cores-remote{'-small' if arguments.small else ''}"
    out = arguments.out or run.HERE / "results" / machine
    out.mkdir(parents=True, exist_ok=True)
    cases = {case.name: case for case in archives.make(work, arguments.small, "real-zst,real-gz,large")}
    peers = os.environ.get("TARNFS_PEERS", str(run.HERE.parent / "target" / "peers"))
    ratarmount = shutil.which("ratarmount", path=f"{peers}/bin:{os.environ['PATH']}")
    programs = {"tarnfs": [arguments.tarnfs]}
    if ratarmount:
        programs["ratarmount"] = [ratarmount, "--index-file", "URL.index.sqlite"]
    for case in cases.values():
        make_indexes(case, arguments.tarnfs, ratarmount)
        archives.into_page_cache(case.path)
    table = Table(out)
    server = Server(work)
    line = Line(server.port)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-remote-") as folder:
            for name in ("real-zst", "real-gz"):
                metadata(cases[name], programs, line, table, folder)
            sequential(cases["large"], programs, line, server, table, folder)
    finally:
        line.end()
        server.end()
    sizes = ", ".join(
        f"{case.path.name} {case.path.stat().st_size / 2**20:.0f} MiB (index {os.path.getsize(f'{case.path}.tarnfs.sqlite') / 2**20:.1f})"
        for case in cases.values()
        if os.path.exists(f"{case.path}.tarnfs.sqlite")
    )
    table.write(f"# Archives behind a URL, {machine}\n\nLinux {platform.release()}, {os.cpu_count()} processors. {sizes}.\nEach index is beside its archive on the server.")


if __name__ == "__main__":
    main()
