"""Answers as the documented interfaces of GitHub and Dropbox do, and a gateway of IPFS, for the files of one folder.

Arguments: port, folder, log, token. GitHub has a repository Org/Repo with the branches main and a/b, and lists at most
a thousand names; Dropbox keeps each revision that it has shown, and lists two names at a time.
"""

import hashlib
import http.server
import json
import os
import re
import sys
import time
import urllib.parse

port, folder, log, token = sys.argv[1:]
REVISIONS = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def file(self, body, tag, headers=()):
        headers = [*headers, ("ETag", tag), ("Accept-Ranges", "bytes")]
        if self.headers.get("If-None-Match") == tag:
            return self.answer(304, headers=headers)
        if self.headers.get("If-Match", tag) != tag:
            return self.answer(412, headers=headers)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked:
            return self.answer(200, body, headers)
        start, end = int(asked[1]), min(int(asked[2]) + 1, len(body))
        if start >= len(body):
            return self.answer(416, headers=[*headers, ("Content-Range", f"bytes */{len(body)}")])
        headers.append(("Content-Range", f"bytes {start}-{end - 1}/{len(body)}"))
        self.answer(206, body[start:end], headers)

    def do_GET(self):
        self.respond()

    def do_POST(self):
        self.respond()

    def respond(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        url = urllib.parse.urlsplit(self.path)
        with open(log, "a") as file:
            print(self.command, self.path, self.headers.get("Dropbox-API-Arg", ""), file=file)
        path = urllib.parse.unquote(url.path)
        for start, answer in [
            ("/api/repos/Org/Repo/contents", self.contents),
            ("/api/repos/Org/Repo/git/trees/", self.tree),
            ("/raw/Org/Repo/", self.raw),
            ("/ipfs/Qm", self.gateway),
            ("/ipns/", self.gateway),
            ("/2/files/", self.dropbox),
        ]:
            if path.startswith(start):
                return answer(path[len(start) :], urllib.parse.parse_qs(url.query), body)
        self.answer(404)

    def at(self, path):
        return os.path.join(folder, path.strip("/"))

    # GitHub

    def may(self):
        return self.headers.get("Authorization") in (None, f"Bearer {token}")

    def entries(self, path, name, kinds):
        for entry in sorted(os.scandir(self.at(path)), key=lambda entry: entry.name):
            kind = kinds[entry.is_dir()]
            sha = hashlib.sha1(os.path.normpath(entry.path).encode()).hexdigest()
            size = {} if entry.is_dir() else {"size": entry.stat().st_size}
            yield {name: entry.name, "type": kind, "sha": sha, "mode": "100644", **size}

    def contents(self, path, query, _):
        if query.get("ref", ["main"])[0] not in ("main", "a/b") or not os.path.exists(self.at(path)):
            return self.answer(404, {"message": "Not Found"})
        if not self.may():
            return self.answer(401, {"message": "Bad credentials"})
        if os.path.isfile(self.at(path)):
            return self.answer(200, {"type": "file", "size": os.path.getsize(self.at(path))})
        self.answer(200, list(self.entries(path, "name", ("file", "dir")))[:1000])

    def tree(self, name, _, __):
        paths = {hashlib.sha1(root.encode()).hexdigest(): root for root, _, _ in os.walk(folder)}
        root = folder if name in ("main", "HEAD", "a/b") else paths.get(name)
        if root is None:
            return self.answer(404, {"message": "Not Found"})
        entries = list(self.entries(os.path.relpath(root, folder), "path", ("blob", "tree")))
        self.answer(200, {"sha": name, "tree": entries, "truncated": False})

    def raw(self, path, _, __):
        for start in ("HEAD/", "main/", "a/b/"):
            if path.startswith(start) and os.path.isfile(self.at(path[len(start) :])):
                body = open(self.at(path[len(start) :]), "rb").read()
                return self.file(body, f'"{hashlib.sha256(body).hexdigest()}"')
        self.answer(404)

    # IPFS

    def gateway(self, path, _, __):
        path = path.partition("/")[2]
        if not os.path.isfile(self.at(path)):
            return self.answer(404)
        body = open(self.at(path), "rb").read()
        self.file(body, f'"Qm{hashlib.sha256(body).hexdigest()}"', [("X-Ipfs-Path", self.path)])

    # Dropbox

    def dropbox(self, function, _, body):
        if self.headers.get("Authorization") != f"Bearer {token}":
            return self.answer(401, {"error_summary": "expired_access_token/.."})
        if function == "download":
            return self.download(json.loads(self.headers["Dropbox-API-Arg"])["path"])
        asked = json.loads(body)
        path, start = (asked["path"], 0) if function == "list_folder" else json.loads(asked["cursor"])
        if path == "/" or not os.path.isdir(self.at(path)):
            return self.answer(409, {"error_summary": "path/not_found/..", "error": {}})
        entries = []
        for entry in sorted(os.scandir(self.at(path)), key=lambda entry: entry.name):
            about = {".tag": "folder" if entry.is_dir() else "file", "name": entry.name}
            if not entry.is_dir():
                about["size"] = entry.stat().st_size
                about["client_modified"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.stat().st_mtime))
            entries.append(about)
        end = start + 2
        answer = {"entries": entries[start:end], "cursor": json.dumps([path, end]), "has_more": end < len(entries)}
        self.answer(200, answer)

    def download(self, path):
        if path.startswith("rev:"):
            revision, body = path[4:], REVISIONS.get(path[4:])
        elif os.path.isdir(self.at(path)):
            return self.answer(409, {"error_summary": "path/not_file/.."})
        elif os.path.isfile(self.at(path)):
            body = open(self.at(path), "rb").read()
            revision = hashlib.sha256(body).hexdigest()[:16]
            REVISIONS[revision] = body
        else:
            body = None
        if body is None:
            return self.answer(409, {"error_summary": "path/not_found/.."})
        about = json.dumps({"name": os.path.basename(path), "rev": revision, "size": len(body)})
        self.file(body, f'W/"{revision}"', [("Dropbox-API-Result", about)])


http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
