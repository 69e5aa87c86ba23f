"""Makes container images by hand, and what they are unpacked, layer by layer.

images.py FOLDER  makes in FOLDER: docker.tar, oci.tar, oci (a layout), two.tar, platforms.tar, and as references
rootfs, and rootfs-1 (of the lowest layer alone).
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

FOLDER = sys.argv[1]
TIME = 1_600_000_000


def entry(name, kind=tarfile.REGTYPE, content=b"", mode=0o644, owner=(0, 0), link="", device=(0, 0), pax=None):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = kind, mode, link, len(content)
    info.uid, info.gid = owner
    info.devmajor, info.devminor = device
    info.mtime = TIME
    info.pax_headers = pax or {}
    return info, content


def folder(name, mode=0o755, **more):
    return entry(name, tarfile.DIRTYPE, mode=mode, **more)


def layer(*entries):
    """One layer as a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


LONG = b"".join(b"%d\n" % (number * number % 1_000_003) for number in range(400_000))

LOWEST = layer(
    folder("etc"),
    entry("etc/conf", content=b"one\n", pax={"SCHILY.xattr.user.k": "v"}),
    folder("data", owner=(123, 456)),
    folder("data/sub"),
    entry("data/sub/f", content=b"old\n"),
    entry("data/keep", content=b"keep\n"),
    entry("data/long", content=LONG, owner=(5, 6), pax={"mtime": "1600000000.123456789"}),
    folder("opq"),
    folder("opq/x"),
    entry("opq/x/y", content=b"y\n"),
    entry("opq/z", content=b"z\n"),
    folder("again"),
    entry("again/old", content=b"old\n"),
    folder("usr"),
    folder("usr/bin"),
    folder("usr/share"),
    entry("usr/share/doc", content=b"doc\n"),
    entry("usr/bin/tool", content=b"#!/bin/sh\n", mode=0o4755),
    entry("usr/bin/other", tarfile.LNKTYPE, link="usr/bin/tool", mode=0o4755),
    entry("usr/bin/plain", content=b"plain\n"),
    entry("bin", tarfile.SYMTYPE, link="usr/bin", mode=0o777),
    folder("tmp", mode=0o1777),
    folder("dev"),
    entry("dev/null", tarfile.CHRTYPE, device=(1, 3), mode=0o666),
    # Not a whiteout: that is what overlayfs has, not a layer.
    entry("dev/zero", tarfile.CHRTYPE, device=(0, 0), mode=0o600),
    entry("pipe", tarfile.FIFOTYPE),
    entry("swap", content=b"a file\n"),
    entry("-first", content=b"sorts before a dot\n"),
)

MIDDLE = layer(
    folder("etc", mode=0o700),
    entry("etc/new", content=b"new\n"),
    entry("data/.wh.keep"),
    entry("data/.wh.never"),
    entry("data/sub", content=b"a file now\n"),
    # As umoci tells, behind the file, what was in the folder before.
    entry("data/sub/.wh.f"),
    folder("opq"),
    entry("opq/n", content=b"n\n"),
    entry("opq/.wh..wh..opq"),
    # Only what lies in it says that there is such a folder.
    entry("tmp/below", content=b"below\n"),
    folder("swap"),
    entry("swap/inside", content=b"inside\n"),
    entry("usr/.wh.share"),
    entry("usr/bin/own", content=b"own\n"),
    entry("usr/bin/own-too", tarfile.LNKTYPE, link="usr/bin/own"),
    entry(".wh.-first"),
    entry(".wh..wh.plnk"),
)

HIGHEST = layer(
    folder("data/sub"),
    entry("data/sub/f2", content=b"again\n"),
    entry(".wh.swap"),
    entry("swap", content=b"a file again\n"),
    # Removed, and made again.
    entry(".wh.again"),
    folder("again", mode=0o750),
    entry("again/new", content=b"new\n"),
    folder("made/of/many", mode=0o711),
    entry("usr/bin/plain", content=b"#!/bin/true\n", mode=0o755),
)

EMPTY = bytes(1024)

LAYERS = [LOWEST, MIDDLE, HIGHEST, EMPTY]


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def config(layers, architecture="amd64", variant=None):
    rootfs = {"type": "layers", "diff_ids": [digest(layer) for layer in layers]}
    document = {"os": "linux", "architecture": architecture, "created": "2020-09-13T12:26:40Z", "rootfs": rootfs}
    if variant:
        document["variant"] = variant
    return json.dumps(document).encode()


def zstd(content):
    return subprocess.run(["zstd", "-qc"], input=content, stdout=subprocess.PIPE, check=True).stdout


def plain(content):
    return content


def compressed(content):
    return gzip.compress(content, mtime=0)


class Layout:
    """The files of an OCI layout."""

    def __init__(self):
        self.files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
        self.manifests = []

    def blob(self, content):
        self.files["blobs/" + digest(content).replace(":", "/")] = content
        return {"digest": digest(content), "size": len(content)}

    def manifest(self, layers, how, **platform):
        """Stores a manifest, and returns what leads to it."""
        layers_stored = []
        for layer, (pack, kind) in zip(layers, how):
            media = "application/vnd.oci.image.layer.v1.tar" + kind
            layers_stored.append({"mediaType": media, **self.blob(pack(layer))})
        media = "application/vnd.oci.image.config.v1+json"
        document = {
            "schemaVersion": 2,
            "config": {"mediaType": media, **self.blob(config(layers, **platform))},
            "layers": layers_stored,
        }
        media = "application/vnd.oci.image.manifest.v1+json"
        return {"mediaType": media, **self.blob(json.dumps(document).encode())}

    def index(self, manifests):
        document = {"schemaVersion": 2, "manifests": manifests}
        media = "application/vnd.oci.image.index.v1+json"
        return {"mediaType": media, **self.blob(json.dumps(document).encode())}

    def finish(self):
        self.files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": self.manifests}).encode()
        return self.files


def write_tar(name, files):
    with tarfile.open(os.path.join(FOLDER, name), "w") as tar:
        for path, content in files.items():
            info, content = entry(path, content=content)
            tar.addfile(info, io.BytesIO(content))


def write_folder(name, files):
    for path, content in files.items():
        path = os.path.join(FOLDER, name, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def docker(images):
    """The files of `docker save`."""
    files, manifest = {}, []
    for names, layers in images:
        document = config(layers)
        files[digest(document)[7:] + ".json"] = document
        paths = []
        for layer in layers:
            paths.append(digest(layer)[7:] + "/layer.tar")
            files[paths[-1]] = layer
        manifest.append({"Config": digest(document)[7:] + ".json", "RepoTags": names, "Layers": paths})
    files["manifest.json"] = json.dumps(manifest).encode()
    return files


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def apply(name, layers):
    """Unpacks layers one after the other, as the specification says it."""
    root = os.path.join(FOLDER, name)
    os.makedirs(root)
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            members = tar.getmembers()
        for member in members:
            where, last = os.path.split(os.path.join(root, member.name))
            if last == ".wh..wh..opq":
                for inside in os.listdir(where) if os.path.isdir(where) else []:
                    remove(os.path.join(where, inside))
            elif last.startswith(".wh."):
                remove(os.path.join(where, last[4:]))
        for member in members:
            path = os.path.join(root, member.name)
            if os.path.basename(path).startswith(".wh."):
                continue
            if os.path.lexists(path) and not (member.isdir() and os.path.isdir(path)):
                remove(path)
        command = ["tar", "-xpf", "-", "-C", root, "--numeric-owner", "--xattrs", "--xattrs-include=*", "--exclude=.wh.*"]
        subprocess.run(command, input=layer, check=True)


def main():
    write_tar("docker.tar", docker([(["demo:latest"], LAYERS)]))
    layout = Layout()
    how = [(compressed, "+gzip"), (zstd, "+zstd"), (plain, ""), (compressed, "+gzip")]
    layout.manifests = [layout.manifest(LAYERS, how)]
    write_tar("oci.tar", layout.finish())
    write_folder("oci", layout.finish())
    write_tar("two.tar", docker([(["demo:latest", "host/demo:1"], LAYERS), (["small:latest"], [LOWEST])]))

    layout = Layout()
    both = [
        layout.manifest([LOWEST], how, architecture="riscv64"),
        layout.manifest(LAYERS, how, architecture="arm", variant="v6"),
    ]
    both[0]["platform"] = {"os": "linux", "architecture": "riscv64"}
    both[1]["platform"] = {"os": "linux", "architecture": "arm", "variant": "v6"}
    statement = layout.manifest([], [], architecture="unknown")
    statement["annotations"] = {"vnd.docker.reference.type": "attestation-manifest"}
    layout.manifests = [layout.index(both + [statement])]
    write_tar("platforms.tar", layout.finish())

    apply("rootfs", LAYERS)
    apply("rootfs-1", [LOWEST])


main()
