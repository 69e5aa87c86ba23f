//! `tarnfs serve`: byte for byte what the archives hold, over real sockets, with real clients, and with bad ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use crate::served::{self, Served, request};
use crate::support::{self, Scratch, have, run, wait_until};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

/// Bytes that compress a little, and are the same in each run.
fn content(length: usize, mut seed: u64) -> Vec<u8> {
    (0..length)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            b"abcdefghijklmnopqrstuvwxyz012345"[(seed >> 59) as usize]
        })
        .collect()
}

fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 20) % below
    }
}

#[test]
fn ranges_are_those_of_the_file() {
    let scratch = Scratch::new();
    let bytes = content(3_000_001, 1);
    fs::create_dir_all(scratch.path("tree/sub")).unwrap();
    fs::write(scratch.path("tree/sub/a file.bin"), &bytes).unwrap();
    scratch.shell("cd tree; tar -cf ../a.tar sub; tar -czf ../a.tar.gz sub; tar -cf ../a.tar.bz2 -j sub; tar -c sub | zstd -q -o ../a.tar.zst
        find sub | cpio -o -H newc > ../a.cpio 2>/dev/null; gzip -c 'sub/a file.bin' > '../a file.bin.gz'");
    let mut archives = vec!["a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.zst", "a.cpio", "a file.bin.gz", "tree"];
    for (program, archive, make) in [
        ("zip", "a.zip", "cd tree; zip -qr ../a.zip sub"),
        ("7z", "a.7z", "cd tree; 7z a -bd -bso0 ../a.7z sub"),
        ("mksquashfs", "a.squashfs", "mksquashfs tree a.squashfs -quiet -no-progress"),
    ] {
        if have(program) {
            scratch.shell(make);
            archives.push(archive);
        }
    }
    let length = bytes.len() as u64;
    for archive in archives {
        let served = Served::new(&scratch, [archive]);
        let path = if archive == "a file.bin.gz" { "/a%20file.bin" } else { "/sub/a%20file.bin" };
        let whole = served.get(path).whole(200);
        assert!(whole.body == bytes, "{archive}");
        assert_eq!(whole.header("accept-ranges"), "bytes");
        let mut number = numbers(7);
        for _ in 0..40 {
            let start = number(length);
            let end = (start + 1 + number(300_000)).min(length);
            let part = served.ask("GET", path, &[("Range", &format!("bytes={start}-{}", end - 1))]).whole(206);
            assert_eq!(part.header("content-range"), format!("bytes {start}-{}/{length}", end - 1), "{archive}");
            assert!(part.body == bytes[start as usize..end as usize], "{archive} {start}-{end}");
        }
        let last = served.ask("GET", path, &[("Range", "bytes=-5")]).whole(206);
        assert_eq!(last.body, &bytes[bytes.len() - 5..], "{archive}");
        let none = served.ask("GET", path, &[("Range", "bytes=3000001-")]).whole(416);
        assert_eq!(none.header("content-range"), "bytes */3000001");
        let several = served.ask("GET", path, &[("Range", "bytes=10-19,2999990-,1000000-1299999")]).whole(206);
        let boundary = several.header("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
        let mut expected = Vec::new();
        for (first, last) in [(10, 19), (2_999_990, 3_000_000), (1_000_000, 1_299_999)] {
            let kind = "application/octet-stream";
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: bytes {first}-{last}/{length}\r\n\r\n"
            );
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(&bytes[first..=last]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(several.body == expected, "{archive}");
        let head = served.ask("HEAD", path, &[("Range", "bytes=0-1")]).whole(200);
        assert_eq!((head.header("content-length"), head.body.len()), ("3000001", 0));
        assert_eq!(served.end(), Some(0));
    }
}

#[test]
fn who_has_a_file_gets_it_once() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; echo 'two two' > two; touch -d 2001-09-09T01:46:40Z one two; tar -cf a.tar one two");
    let served = Served::new(&scratch, ["a.tar"]);
    let first = served.get("/one").whole(200);
    let etag = first.header("etag").to_owned();
    assert!(etag.starts_with('"'), "of an archive it is a strong one: {etag}");
    assert_eq!(first.header("last-modified"), "Sun, 09 Sep 2001 01:46:40 GMT");
    assert_ne!(served.get("/two").header("etag"), etag);
    let has = |name: &str, value: &str| served.ask("GET", "/one", &[(name, value)]);
    assert_eq!(has("If-None-Match", &etag).whole(304).header("etag"), etag);
    has("If-None-Match", "\"other\"").whole(200);
    has("If-Modified-Since", "Sun, 09 Sep 2001 01:46:40 GMT").whole(304);
    has("If-Modified-Since", "Sun, 09 Sep 2001 01:46:39 GMT").whole(200);
    has("If-Match", "\"other\"").whole(412);
    let ranged = |if_range: &str| served.ask("GET", "/one", &[("Range", "bytes=0-0"), ("If-Range", if_range)]).status;
    assert_eq!((ranged(&etag), ranged("\"other\""), ranged("Sun, 09 Sep 2001 01:46:40 GMT")), (206, 200, 206));
    assert_eq!(served.end(), Some(0));
    // The same archive is the same the next time, and another one is not.
    let again = Served::new(&scratch, ["a.tar"]);
    assert_eq!(again.get("/one").header("etag"), etag);
    drop(again);
    scratch.shell("echo 1ne > one; touch -d 2001-09-09T01:46:40Z one; tar -cf a.tar one two");
    assert_ne!(Served::new(&scratch, ["a.tar"]).get("/one").header("etag"), etag);
}

/// What an option shows under a name is another file than what that name was before.
#[test]
fn another_view_of_an_archive_has_other_etags() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir v1 v2; echo 1.1 > v1/page; echo 1.2 > v2/page; touch -d 2001-09-09T01:46:40Z v?/page v?; tar -cf a.tar v1 v2",
    );
    let etag = |options: &[&str]| {
        let served = Served::new(&scratch, options.iter().chain(&["a.tar"]));
        let answer = served.get("/page").whole(200);
        (answer.header("etag").to_owned(), answer.body)
    };
    let views =
        [&["--prefix", "v1"][..], &["--prefix", "v2"], &["--transform", "^/v1/", "/"], &["--transform", "^/v2/", "/"]];
    let seen = views.map(etag);
    for (number, (one, body)) in seen.iter().enumerate() {
        assert_eq!(body, [b"1.1\n", b"1.2\n"][number % 2]);
        assert!(seen[..number].iter().all(|(other, _)| other != one), "{:?}", views[number]);
    }
    assert_eq!(etag(views[0]), seen[0]);
}

/// Links of a page to what is in the folder.
fn links(page: &str) -> Vec<String> {
    let body = page.split_once("<tbody>").unwrap().1.split_once("</table>").unwrap().0;
    body.split("<a href=\"").skip(1).map(|link| link.split_once('"').unwrap().0.to_owned()).collect()
}

#[test]
fn a_page_lists_what_is_there_whatever_it_is_called() {
    let scratch = Scratch::new();
    scratch.shell(
        r#"mkdir -p tree/sub/deep; cd tree; printf 1 > '<script>alert(1)<script>'; printf 22 > $'caf\xe9'; printf 333 > 'javascript:alert(1)'
        printf 4444 > $'new\nline'; printf 55555 > '100%'; printf 666666 > 'a"b&c'\''d'; printf 7777777 > '?q=x#y'; printf 88888888 > '...'
        printf 999999999 > $'\xe2\x80\xaetxt'; printf '<script>alert(2)</script>' > page.html; mkfifo pipe; touch -d 2020-01-02T03:04:05Z page.html
        ln -s page.html link; touch sub/deep/file; tar -cf ../a.tar ."#,
    );
    for archive in ["a.tar", "tree"] {
        let served = Served::new(&scratch, [archive]);
        let page = served.get("/").whole(200);
        let policy = page.header("content-security-policy").to_owned();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        let text = page.text();
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;alert(1)&lt;script&gt;"), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        assert!(text.contains("2020-01-02 03:04") && text.contains("1 folder, 12 files"), "{text}");
        let links = links(&text);
        assert_eq!(links.first().unwrap(), "sub/");
        assert!(links.iter().all(|link| !link.contains([':', '<', '&', '\'', '?', '#'])), "{links:?}");
        let mut sizes: Vec<_> = links
            .iter()
            .filter(|link| !link.ends_with('/') && !["link", "page.html"].contains(&link.as_str()))
            .map(|link| served.get(&format!("/{link}")).whole(200).body.len())
            .collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2, 3, 4, 5, 6, 7, 8, 9], "{links:?}");
        // A page of somebody else runs nothing, and belongs to nobody.
        let html = served.get("/page.html").whole(200);
        assert_eq!(html.header("content-type"), "text/html; charset=utf-8");
        assert!(html.header("content-security-policy").starts_with("sandbox allow-same-origin; default-src 'none';"));
        assert_eq!(
            served.get("/page.html?download").header("content-disposition"),
            "attachment; filename=\"page.html\""
        );
        served.get("/pipe").whole(403);
        let moved = served.get("/sub?sort=size").whole(301);
        assert_eq!(moved.header("location"), "/sub/?sort=size");
        assert_eq!(served.get("/sub?q=é").whole(301).header("location"), "/sub/?q=%C3%A9");
        assert!(served.get("/sub/").whole(200).text().contains("<a href=\"../\">..</a>"));
        served.get("/page.html/").whole(404);
        served.get("/sub/nothing").whole(404);
        assert_eq!(served.end(), Some(0));
    }
}

#[test]
fn a_page_is_sorted_and_searched_by_links() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/z; cd tree; printf 1 > B; printf 333 > a; printf 22 > c; touch -d 2001-01-01 c; touch -d 2002-01-01 a
         touch -d 2003-01-01 B; tar -cf ../a.tar .",
    );
    let served = Served::new(&scratch, ["a.tar"]);
    let order = |query: &str| links(&served.get(&format!("/{query}")).whole(200).text()).join(" ");
    for (query, names) in [
        ("", "z/ a B c"),
        ("?sort=name&order=desc", "z/ c B a"),
        ("?sort=size", "z/ B c a"),
        ("?sort=size&order=desc", "z/ a c B"),
        ("?sort=time", "z/ c a B"),
        ("?sort=nothing&order=x&page=7", "z/ a B c"),
        ("?q=b", "B"),
        ("?q=%3Cb%3E", ""),
    ] {
        assert_eq!(order(query), names, "{query}");
    }
    assert!(served.get("/?q=%22%3E%3Cb%3E").text().contains("value=\"&quot;&gt;&lt;b&gt;\""));
    // What is below is found, too, but nothing is opened for that; of a link only what it is called.
    scratch.shell(
        "mkdir -p deep/1/2/3 deep/x; cd deep; echo y > '1/2/3/no?tes'; ln -s / 1/notes; echo z > x/NOTES; mkdir 1/2/notes
         head -c 8M /dev/urandom > x/noise
         tar -cf 1/in.tar x; tar -cf ../deep.tar 1 x; mksquashfs . ../deep.squashfs -b 4096 -comp gzip -quiet -no-progress",
    );
    // An archive in very many pieces is listed from the index as any other is.
    for (archive, in_archive) in [("deep.tar", 1), ("deep.squashfs", 1), ("deep", 0)] {
        let served = Served::new(&scratch, ["-r", archive]);
        let found = |path: &str| served.get(path).whole(200).text();
        let page = found("/?q=OTES");
        let mut expected = vec!["1/2/notes/", "1/notes", "x/NOTES"];
        expected.extend(["1/in.tar/x/NOTES"].iter().take(in_archive));
        let mut got = links(&page);
        got.sort();
        expected.sort_unstable();
        assert_eq!(got, expected, "{archive}");
        assert_eq!(page.contains("; 1 folder not searched"), archive == "deep", "{page}");
        assert_eq!(links(&found("/1/2/?q=tes")), ["../", "notes/", "3/no%3Ftes"], "{archive}");
    }
    // More than fit on a page are on several.
    scratch.shell("mkdir many; cd many; seq -f f%05g 10001 | xargs touch; tar -cf ../many.tar .");
    let served = Served::new(&scratch, ["many.tar"]);
    let (first, second) = (served.get("/").text(), served.get("/?page=2").text());
    assert_eq!((links(&first).len(), links(&second)), (10_000, vec!["f10001".to_owned()]));
    assert!(first.contains("&amp;page=2\">2</a>") && first.contains("10001 files"));
}

#[test]
fn links_stay_in_the_tree() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/sub; cd tree; echo inside > file; ln -s ../file sub/up; ln -s /file sub/absolute; ln -s /etc/passwd passwd
         ln -s ../../../../etc/passwd climbs; ln -s loop loop; ln -s sub folder; ln -s file 00
         for i in $(seq 1 41); do ln -s $(printf %02d $((i-1))) $(printf %02d $i); done; tar -cf ../a.tar .",
    );
    for archive in ["a.tar", "tree"] {
        let served = Served::new(&scratch, [archive]);
        for path in ["/sub/up", "/sub/absolute", "/folder/up", "/39"] {
            assert_eq!(served.get(path).whole(200).text(), "inside\n", "{path}");
        }
        for path in ["/passwd", "/climbs"] {
            served.get(path).whole(404);
        }
        for path in ["/loop", "/40", "/41"] {
            served.get(path).whole(508);
        }
        assert_eq!(served.get("/folder").whole(301).header("location"), "/folder/");
        assert_eq!(served.end(), Some(0));
    }
}

#[test]
fn a_folder_is_an_archive_on_the_way() {
    if !have("unzip") {
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("tree/sub/deep/er")).unwrap();
    fs::write(scratch.path("tree/sub/deep/er/long"), content(5_000_000, 3)).unwrap();
    scratch.shell(
        "cd tree; echo x > 'sub/a b'; ln -s 'a b' sub/link; ln 'sub/a b' sub/hard; chmod 600 'sub/a b'; mkdir sub/empty
         touch -d 2020-01-02T03:04:05Z sub/hard sub/empty; tar -czf ../a.tar.gz .",
    );
    for source in ["a.tar.gz", "tree"] {
        let served = Served::new(&scratch, [source]);
        for (label, unpack) in
            [("tar.zst", "zstd -dcq got | tar -xf -"), ("tar", "tar -xf got"), ("zip", "unzip -q got")]
        {
            let path = format!("/sub/?download={label}");
            let got = served.get(&path).whole(200);
            assert_eq!(got.header("content-disposition"), format!("attachment; filename=\"sub.{label}\""));
            fs::write(scratch.path("got"), &got.body).unwrap();
            let times = if label == "zip" { "" } else { "stat -c '%n %s %Y %a %h' sub/hard sub/empty; " };
            let listed = format!("{times}find sub -printf '%p %m %y %l\\n' | sort");
            let expected = scratch.shell(&format!("cd tree; {listed}"));
            let found = scratch.shell(&format!(
                "rm -rf out; mkdir out; mv got out; cd out; {unpack}; diff -r sub ../tree/sub; {listed}"
            ));
            assert_eq!(found, expected, "{source} {label}");
            assert!(served.ask("HEAD", &path, &[]).whole(200).body.is_empty());
        }
        served.get("/sub/?download=rar").whole(400);
        let root = served.get("/?download=tar").whole(200);
        // Beside the archive, its name would be that of a file.
        let folder = if source == "tree" { "tree" } else { "a" };
        assert_eq!(root.header("content-disposition"), format!("attachment; filename=\"{folder}.tar\""));
        fs::write(scratch.path("root"), &root.body).unwrap();
        assert_eq!(scratch.shell("tar -tf root").lines().next(), Some(&*format!("{folder}/")));
        let mut old = served.connect();
        old.send(b"GET /sub/?download=tar HTTP/1.0\r\n\r\n");
        assert_eq!(old.answer(false).status, 505);
        assert_eq!(served.end(), Some(0));
    }
    // Nor would the name of a folder that shows an archive. Other folders are called as they are.
    scratch.shell("mkdir -p d/photos.raw; split -b 2M a.tar.gz d/parts.tar.gz.; mv a.tar.gz d; tar -cf d/o.tar tree");
    let served = Served::new(&scratch, ["-r", "d"]);
    for (path, name) in [
        ("a.tar.gz", "a"),
        ("parts.tar.gz.aa", "parts"),
        ("photos.raw", "photos.raw"),
        ("a.tar.gz/sub", "sub"),
        ("o.tar", "o"),
        ("o.tar/tree", "tree"),
    ] {
        let got = served.get(&format!("/{path}/?download=tar")).whole(200);
        assert_eq!(got.header("content-disposition"), format!("attachment; filename=\"{name}.tar\""));
        fs::write(scratch.path("root"), &got.body).unwrap();
        assert_eq!(scratch.shell("tar -tf root").lines().next(), Some(&*format!("{name}/")));
    }
    assert_eq!(served.end(), Some(0));
}

#[test]
fn damage_breaks_the_answer_off() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("sub")).unwrap();
    fs::write(scratch.path("sub/first"), content(2_000_000, 1)).unwrap();
    fs::write(scratch.path("sub/second"), content(6_000_000, 2)).unwrap();
    scratch.shell(
        "tar -c sub/first sub/second | zstd -q -o a.tar.zst; cp a.tar.zst cut.tar.zst; truncate -s 3000000 cut.tar.zst",
    );
    let served = Served::new(&scratch, ["cut.tar.zst"]);
    assert!(served.get("/sub/first").whole(200).body == content(2_000_000, 1));
    let second = served.get("/sub/second");
    assert!(second.is_cut && content(6_000_000, 2).starts_with(&second.body), "{} bytes", second.body.len());
    for label in ["tar", "tar.zst", "zip"] {
        let archive = served.get(&format!("/?download={label}"));
        assert!(archive.status == 200 && archive.is_cut, "{label}");
    }
    wait_until("it is told", || served.said().contains("the answer was broken off"));
    // It goes on.
    served.ask("GET", "/sub/first", &[("Range", "bytes=0-9")]).whole(206);
    // The message, which names files of the machine, is for its log only.
    assert_eq!(served.end(), Some(5));
    // Of a single file that is cut nobody knows how long it was.
    scratch.shell("seq 100000 > numbers; gzip -c < numbers > numbers.gz; truncate -s 100000 numbers.gz");
    let single = Served::new(&scratch, ["numbers.gz"]);
    let numbers = single.get("/numbers");
    let all = fs::read(scratch.path("numbers")).unwrap();
    assert!(numbers.is_cut && all.starts_with(&numbers.body), "{} bytes", numbers.body.len());
    assert_eq!(single.end(), Some(5));
    if have("curl") {
        let served = Served::new(&scratch, ["cut.tar.zst"]);
        let code =
            Command::new("curl").args(["-sS", "-o", "/dev/null", &format!("{}/sub/second", served.url())]).status();
        assert_eq!(code.unwrap().code(), Some(18), "curl calls that a part of a file");
    }
}

#[test]
fn only_who_has_a_login_reads() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; printf 'sesame\\n\\nother\\r\\n' > tokens; printf '\\357\\273\\277ann:pass:word\\n' > users; : > none
        printf 'good\\nsesame \\n' > blank");
    for (words, what) in [
        (vec!["--listen", "0.0.0.0:0"], "--listen 0.0.0.0:0: others could read there"),
        (vec!["--token-file", "none"], "--token-file none: there is no token in it"),
        (vec!["--token-file", "blank"], "--token-file blank: a token begins or ends with a blank"),
        (vec!["--login-file", "tokens"], "--login-file tokens: each of its lines must be USER:PASSWORD"),
        (vec!["--token-file", "missing"], "--token-file missing: cannot be read"),
        (vec!["--timeout", "0"], "--timeout 0: give seconds between"),
        (vec!["--most-clients", "0"], "--most-clients 0: nobody could connect"),
        (vec!["--listen", "nowhere:x"], "--listen nowhere:x: is no address"),
        (vec!["--open-to-all", "--token-file", "tokens"], "--open-to-all"),
    ] {
        let mut command = support::tarnfs(&scratch);
        let output = command.arg("serve").args(&words).arg("a.tar").current_dir(scratch.path("")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(what), "{words:?}: {said}");
    }
    let nothing = run(&scratch, ["serve", "--listen", "0", "nothing.tar"]);
    assert_eq!((nothing.code, nothing.text().as_str()), (3, ""));
    let served =
        Served::new(&scratch, ["--listen", "0.0.0.0:0", "--token-file", "tokens", "--login-file", "users", "a.tar"]);
    let with = |login: &str| served.ask("GET", "/one", &[("Authorization", login)]);
    let refused = served.get("/one").whole(401);
    assert!(refused.header("www-authenticate").starts_with("Basic realm="), "{refused:?}");
    // Not even whether there is something.
    served.get("/nothing").whole(401);
    served.ask("PROPFIND", "/", &[("Depth", "1")]).whole(401);
    for good in ["Bearer sesame", "Bearer other", "Basic eDpzZXNhbWU=", "Basic YW5uOnBhc3M6d29yZA=="] {
        with(good).whole(200);
    }
    for bad in ["Bearer sesam", "Bearer", "Bearer ann:pass:word", "Basic YW5uOnBhc3M=", "Basic Og==", "Basic %", "x"] {
        with(bad).whole(401);
    }
    if have("curl") {
        let curl = |words: &[&str]| Command::new("curl").args(["-sf"]).args(words).output().unwrap();
        let url = format!("http://127.0.0.1:{}/one", served.address.port());
        assert_eq!(curl(&["-u", "ann:pass:word", &url]).stdout, b"one\n");
        assert!(!curl(&["-u", "ann:wrong", &url]).status.success());
    }
    assert_eq!(served.end(), Some(0));
    Served::new(&scratch, ["--listen", "0.0.0.0:0", "--open-to-all", "a.tar"]).get("/one").whole(200);
}

/// A mount shows to its user alone what `serve` shows on loopback.
#[test]
fn that_others_can_read_what_is_private_is_told() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; chmod 600 a.tar; echo sesame > tokens");
    let warns = |words: &[&str]| {
        let served = Served::new(&scratch, words.iter().chain(&["a.tar"]));
        served.said().contains("what is private is served to every user of this machine")
    };
    assert!(warns(&[]));
    for words in [&["--open-to-all"][..], &["--token-file", "tokens"]] {
        assert!(!warns(words), "{words:?}");
    }
}

#[test]
fn a_page_of_somebody_else_reads_nothing_here() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one");
    let served = Served::new(&scratch, ["--host", "files.example", "a.tar"]);
    let named = |host: &str| served.ask("GET", "/one", &[("Host", host)]).status;
    for good in ["localhost", "localhost:1", "127.0.0.1", "[::1]:80", "files.example", "FILES.example:80"] {
        assert_eq!(named(good), 200, "{good}");
    }
    for bad in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.1", ""] {
        assert_eq!(named(bad), 421, "{bad}");
    }
    let answer = served.ask("GET", "http://evil.example/one", &[]).whole(421);
    assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
    let twice = served.ask("GET", "/one", &[("Host", "localhost"), ("Host", "evil.example")]);
    assert!([400, 421].contains(&twice.status), "{twice:?}");
    assert!(served.get("/one").header("access-control-allow-origin").is_empty());
}

#[test]
fn bad_requests_do_no_harm() {
    let scratch = Scratch::new();
    scratch.shell("mkdir sub; echo one > one; echo two > two; echo in > sub/in; tar -cf a.tar one two sub");
    let served = Served::new(&scratch, ["--timeout", "1", "a.tar"]);
    for (path, status) in [
        ("/%", 400),
        ("/%zz", 400),
        ("/..", 400),
        ("/sub/../one", 400),
        ("/%2e%2e/etc/passwd", 400),
        ("/sub%2fin", 404),
        ("/one%00", 404),
        ("//evil.example/", 404),
        ("/sub//in", 404),
        ("/one?download=%", 200),
        ("/?q=%&sort=%ff&page=99999999999999999999", 200),
        ("/sub?x", 301),
    ] {
        served.get(path).whole(status);
    }
    let long = format!("/{}", "a".repeat(10_000));
    served.get(&long).whole(404);
    let deep = "/x".repeat(5000);
    served.get(&deep).whole(404);
    for method in ["PUT", "POST", "DELETE", "MKCOL", "PROPPATCH", "LOCK", "COPY", "TRACE"] {
        let refused = served.ask_with(method, "/one", &[], b"x");
        assert_eq!((refused.status, refused.header("allow")), (405, "GET, HEAD, OPTIONS, PROPFIND"), "{method}");
    }
    // What is no HTTP, and heads without an end.
    for bad in [
        &b"\0\x01\x02\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut connection = served.connect();
        connection.send(bad);
        assert!([400, 404].contains(&connection.answer(false).status), "{bad:?}");
    }
    let mut huge = served.connect();
    let many = format!("GET /one HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(300_000));
    // It may be refused, and the connection be gone, before all of it was sent.
    let status = huge.try_send(many.as_bytes()).then(|| huge.answer(false).status);
    assert!(matches!(status, None | Some(431)), "{status:?}");
    // Several requests at once are answered one after the other.
    let mut several = served.connect();
    let all = ["/one", "/two", "/nothing", "/sub/in"].map(|path| request("GET", path, &[], b"")).concat();
    several.send(&all);
    let answers: Vec<_> = (0..4).map(|_| several.answer(false)).map(|answer| (answer.status, answer.text())).collect();
    let expected = [(200, "one\n"), (200, "two\n"), (404, "There is nothing of that name.\n"), (200, "in\n")];
    assert_eq!(answers, expected.map(|(status, text)| (status, text.to_owned())));
    // Who begins and does not go on, and who has done with it, is sent away.
    assert!(several.is_closed());
    for begun in
        ["", "GET /one", "GET /one HTTP/1.1\r\nHost: localhost\r\n", "GET /one HTTP/1.1\r\nHost: localhost\r\nX: "]
    {
        let mut slow = served.connect();
        slow.send(begun.as_bytes());
        assert!(slow.has_end(), "{begun:?}");
    }
    let mut slow = served.connect();
    slow.send(b"PROPFIND / HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\nContent-Length: 10\r\n\r\n<");
    assert_eq!(slow.answer(false).status, 408);
    served.get("/one").whole(200);
    assert_eq!(served.end(), Some(0));
}

#[test]
fn many_clients_leave_room_for_one_more() {
    /// Two pieces of 256 KiB for each would be 500 MiB.
    const CLIENTS: u64 = 1000;
    let scratch = Scratch::new();
    fs::write(scratch.path("long"), content(20_000_000, 5)).unwrap();
    scratch.shell("echo one > one; tar -cf a.tar one; tar -czf b.tar.gz long");
    let served = Served::new(&scratch, ["--most-clients", "8", "--timeout", "600", "a.tar", "b.tar.gz"]);
    // Idle ones go, the oldest first.
    let mut idle: Vec<_> = (0..40).map(|_| served.connect()).collect();
    served.get("/one").whole(200);
    assert!(idle.iter_mut().take(32).all(served::Connection::is_closed));
    drop(idle);
    assert_eq!(served.end(), Some(0));
    // Who takes nothing of what it has asked for holds little, and not for long.
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(4 * CLIENTS, |most| most.min(4 * CLIENTS));
    if wanted < CLIENTS + 200 {
        return println!("left out: the system allows too few open files");
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).unwrap();
    let served = Served::new(&scratch, ["--timeout", "5", "--most-clients", "1200", "a.tar", "b.tar.gz"]);
    let before = served.peak();
    let mut greedy: Vec<_> = (0..CLIENTS).map(|_| served.connect()).collect();
    for connection in &mut greedy {
        connection.send(&request("GET", "/long", &[], b""));
    }
    served.get("/one").whole(200);
    wait_until("their connections are closed", || {
        let sockets = fs::read_dir(format!("/proc/{}/fd", served.process.id())).unwrap().filter_map(|entry| {
            fs::read_link(entry.unwrap().path()).ok().filter(|to| to.to_string_lossy().starts_with("socket:"))
        });
        sockets.count() < 20
    });
    let grown = served.peak() - before;
    // What all of them share, what the decoder keeps, and what connections cost themselves.
    assert!(grown < 300 << 20, "{} MiB", grown >> 20);
    served.get("/one").whole(200);
    assert_eq!(served.end(), Some(0));
}

/// A client that takes its answer slowly, and all the time, is no client on which nothing moves.
#[test]
fn who_reads_slowly_and_steadily_is_not_cut() {
    let scratch = Scratch::new();
    let bytes = content(30_000_000, 5);
    fs::create_dir(scratch.path("folder")).unwrap();
    fs::write(scratch.path("folder/long"), &bytes).unwrap();
    let served = Served::new(&scratch, ["--timeout", "5", "folder"]);
    let mut client = served.connect();
    client.send(&request("GET", "/long", &[], b""));
    // The system holds some MiB: behind these, as much as was read is sent.
    client.skip(12 << 20);
    for _ in 0..40 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        client.skip(128 << 10);
    }
    client.skip(10 << 20);
    assert_eq!(served.end(), Some(0));
}

/// Idle connections leave open files for others, however few the system allows.
#[test]
fn who_is_idle_does_not_hold_all_open_files() {
    let scratch = Scratch::new();
    scratch.shell("mkdir folder; echo one > folder/one");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 300; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tarnfs")]);
    let served = Served::by(limited, &scratch, ["folder"]);
    let mut idle: Vec<_> = (0..400).map(|_| served.connect()).collect();
    for _ in 0..5 {
        served.get("/one").whole(200);
    }
    // The oldest ones went.
    assert!(idle[0].is_closed());
    assert_eq!(served.end(), Some(0));
}

#[test]
fn who_tries_logins_holds_no_place_against_who_has_one() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one; echo sesame > tokens");
    let served = Served::new(&scratch, ["--most-clients", "4", "--timeout", "600", "--token-file", "tokens", "a.tar"]);
    // Each try takes 0.3 s: these go on for longer than any connection here waits for an answer.
    let wrong = b"GET / HTTP/1.1\nHost:localhost\nAuthorization:x\n\n".repeat(1700);
    let mut guessing: Vec<_> = (0..4).map(|_| served.connect()).collect();
    for connection in &mut guessing {
        connection.send(&wrong);
        // It has begun with them.
        assert!(connection.has_more());
    }
    served.ask("GET", "/one", &[("Authorization", "Bearer sesame")]).whole(200);
    drop(guessing);
    assert_eq!(served.end(), Some(0));
}

#[test]
fn who_has_asked_and_takes_nothing_goes_when_somebody_else_comes() {
    let scratch = Scratch::new();
    fs::write(scratch.path("long"), content(30_000_000, 5)).unwrap();
    scratch.shell("echo one > one; tar -cf a.tar one long");
    let served = Served::new(&scratch, ["--most-clients", "4", "--timeout", "600", "a.tar"]);
    let mut slow: Vec<_> = (0..4).map(|_| served.connect()).collect();
    for connection in &mut slow {
        connection.send(&request("GET", "/long", &[], b""));
        // Who has asked, and was not heard yet, counts as idle.
        assert!(connection.has_more());
    }
    served.get("/one").whole(200);
    let cut = slow.iter_mut().map(|connection| connection.answer(false)).filter(|answer| answer.is_cut).count();
    assert!((1..4).contains(&cut), "{cut}");
    assert_eq!(served.end(), Some(0));
}

#[test]
fn what_changes_while_it_is_sent_is_broken_off() {
    let scratch = Scratch::new();
    let bytes = content(30_000_000, 5);
    fs::create_dir(scratch.path("folder")).unwrap();
    fs::write(scratch.path("folder/long"), &bytes).unwrap();
    let served = Served::new(&scratch, ["folder"]);
    assert!(served.get("/long").whole(200).body == bytes);
    let mut client = served.connect();
    client.send(&request("GET", "/long", &[], b""));
    assert!(client.has_more());
    let file = fs::OpenOptions::new().write(true).open(scratch.path("folder/long")).unwrap();
    file.write_all_at(&content(30_000_000, 6), 0).unwrap();
    assert!(client.answer(false).is_cut);
    wait_until("it is told", || served.said().contains("it has changed meanwhile"));
    served.get("/long").whole(200);
    assert_eq!(served.end(), Some(0));
}

#[test]
fn another_archive_in_a_folder_has_other_etags() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir folder new; echo one > one; touch -d 2001-09-09T01:46:40Z one; tar -cf folder/a.tar one; echo 1ne > one
         touch -d 2001-09-09T01:46:40Z one; tar -cf new/a.tar one; touch -d 2002-09-09 folder/a.tar new/a.tar",
    );
    let served = Served::new(&scratch, ["-r", "folder"]);
    let etag = |served: &Served| {
        let got = served.get("/a.tar/one").whole(200);
        let etag = got.header("etag").to_owned();
        let told = served.ask_with("PROPFIND", "/a.tar/", &[("Depth", "1")], b"").whole(207).text();
        assert!(told.contains(&format!("<D:getetag>{}</D:getetag>", etag.replace('"', "&quot;"))), "{etag}: {told}");
        (got.text(), etag)
    };
    let before = etag(&served);
    assert_eq!(etag(&served), before);
    scratch.shell("mv new/a.tar folder/a.tar");
    wait_until("it is noticed", || served.get("/a.tar/one").text() == "1ne\n");
    assert_ne!(etag(&served).1, before.1);
    assert_eq!(served.end(), Some(0));
}

/// Images that are always made with the same times, also of what leads to them.
#[test]
fn other_images_in_a_folder_have_other_etags() {
    let scratch = Scratch::new();
    let make = |content: &str| {
        scratch.shell(&format!(
            r"rm -rf img; python3 - <<'E'
import hashlib, io, json, os, tarfile
os.makedirs('img/blobs/sha256')
def blob(content, kind):
    name = hashlib.sha256(content).hexdigest()
    open('img/blobs/sha256/' + name, 'wb').write(content)
    return {{'mediaType': 'application/vnd.oci.image.' + kind, 'digest': 'sha256:' + name, 'size': len(content)}}
layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode='w') as file:
    member = tarfile.TarInfo('f')
    member.size, member.mtime = 5, 315532800
    file.addfile(member, io.BytesIO(b'{content}'))
layer = blob(layer.getvalue(), 'layer.v1.tar')
config = {{'architecture': 'amd64', 'os': 'linux', 'rootfs': {{'type': 'layers', 'diff_ids': [layer['digest']]}}}}
config = blob(json.dumps(config).encode(), 'config.v1+json')
manifest = blob(json.dumps({{'schemaVersion': 2, 'config': config, 'layers': [layer]}}).encode(), 'manifest.v1+json')
open('img/index.json', 'w').write(json.dumps({{'schemaVersion': 2, 'manifests': [manifest]}}))
open('img/oci-layout', 'w').write(json.dumps({{'imageLayoutVersion': '1.0.0'}}))
E
            find img -exec touch -d @315532800 {{}} +"
        ));
    };
    let etag = || {
        let served = Served::new(&scratch, ["img"]);
        served.get("/.layers/").whole(404);
        let got = served.get("/f").whole(200);
        assert_eq!(served.end(), Some(0));
        (got.text(), got.header("etag").to_owned())
    };
    make("hello");
    let before = etag();
    assert_eq!((&before.0[..], etag()), ("hello", before.clone()));
    make("world");
    let now = etag();
    assert!(now.0 == "world" && now.1 != before.1, "{now:?} {before:?}");
}

#[test]
fn targets_of_links_make_no_page_long() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; long=$(printf 'x%.0s' $(seq 4000)); for i in $(seq 300); do ln -s $long tree/$i; done
         ln -s short tree/a; tar -C tree -cf a.tar .",
    );
    let served = Served::new(&scratch, ["a.tar"]);
    let page = served.get("/").whole(200).text();
    assert!(page.contains("\u{2192} short<") && page.contains(&format!("\u{2192} {}\u{2026}<", "x".repeat(200))));
    assert!(page.len() < 150_000, "{}", page.len());
    assert_eq!(served.end(), Some(0));
}

#[test]
fn a_browser_shows_pages_with_what_lies_beside_them() {
    if !have("chromium") {
        println!("no Chromium: what a browser shows is not tested");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        r#"mkdir site; cd site; style='body{background:rgb(0,128,0)}'; echo "$style" > style.css
        picture='<svg xmlns="http://www.w3.org/2000/svg" width="80" height="80"><rect width="80" height="80" fill="red"/></svg>'
        echo "$picture" > picture.svg; code=$(echo "$picture" | base64 -w0)
        script='<script>document.body.textContent="It has run"</script>'
        echo '<!doctype html><link rel=stylesheet href=style.css><body><img src=picture.svg>'"$script" > beside.html
        echo "<!doctype html><style>$style</style><body><img src=data:image/svg+xml;base64,$code>" > inside.html
        echo '<!doctype html><body>' > empty.html; tar -cf ../site.tar ."#,
    );
    let served = Served::new(&scratch, ["site.tar"]);
    let shot = |page: &str| {
        let output = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=300,200", "--screenshot=shot.png"])
            .arg(format!("--user-data-dir={}", scratch.path("profile").display()))
            .arg(format!("{}/{page}", served.url()))
            .current_dir(scratch.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read(scratch.path("shot.png")).unwrap()
    };
    let (beside, inside, empty) = (shot("beside.html"), shot("inside.html"), shot("empty.html"));
    assert!(beside == inside && beside != empty, "{}", scratch.path("shot.png").display());
    assert_eq!(served.end(), Some(0));
}

#[test]
fn the_end_is_clean_also_in_the_middle() {
    let scratch = Scratch::new();
    fs::write(scratch.path("long"), content(30_000_000, 5)).unwrap();
    scratch.shell("tar -cf a.tar long");
    for signal in [Signal::INT, Signal::TERM] {
        let mut served = Served::new(&scratch, ["a.tar"]);
        let mut idle = served.connect();
        let mut waits = served.connect();
        waits.send(&request("GET", "/long", &[], b""));
        let mut archive = served.connect();
        archive.send(&request("GET", "/?download=zip", &[], b""));
        served.get("/").whole(200);
        assert!(waits.has_more() && archive.has_more());
        served.signal(signal);
        assert_eq!(served.process.wait().unwrap().code(), Some(0));
        assert!(idle.is_closed() && waits.answer(false).is_cut && archive.answer(false).is_cut);
    }
}

const PROPERTIES: &str = "<?xml version=\"1.0\"?><propfind xmlns=\"DAV:\" xmlns:x=\"urn:x\"><prop><getcontentlength/><resourcetype/>\
                          <x:nothing/></prop></propfind>";

/// > WebDAV shows links as what they lead to, but for those that lead back to a folder above them.
#[test]
fn webdav_tells_properties() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/sub; cd tree; printf 12345 > 'a&b'; printf 1 > $'caf\\xe9'; ln -s 'a&b' link; ln -s nowhere broken; ln -s sub folder
         mkfifo pipe; tar -cf ../a.tar . ; mkdir -p loops/inner; ln -s . loops/self; ln -s / loops/root; ln -s ../sub loops/beside
         ln -s .. loops/inner/up; ln -s ../../loops/inner/.. loops/inner/long; ln -s ../../sub loops/inner/sub; tar -rf ../a.tar loops",
    );
    let served = Served::new(&scratch, ["a.tar"]);
    let options = served.ask("OPTIONS", "/", &[]).whole(200);
    assert_eq!((options.header("dav"), options.header("allow")), ("1", "GET, HEAD, OPTIONS, PROPFIND"));
    served.ask("OPTIONS", "*", &[]).whole(200);
    let find =
        |path: &str, depth: &str, body: &str| served.ask_with("PROPFIND", path, &[("Depth", depth)], body.as_bytes());
    for depth in ["infinity", "2", ""] {
        assert!(find("/", depth, "").whole(403).text().contains("propfind-finite-depth"));
    }
    served.ask("PROPFIND", "/", &[]).whole(403);
    let hrefs = |text: &str| -> Vec<String> {
        text.split("<D:href>").skip(1).map(|rest| rest.split_once('<').unwrap().0.to_owned()).collect()
    };
    let root = find("/", "0", "").whole(207).text();
    assert_eq!(hrefs(&root), ["/"]);
    let all = find("/", "1", PROPERTIES).whole(207).text();
    let mut found = hrefs(&all);
    found.sort();
    assert_eq!(found, ["/", "/a%26b", "/caf%E9", "/folder/", "/link", "/loops/", "/sub/"]);
    let file = all.split("<D:response>").find(|part| part.contains("/a%26b<")).unwrap();
    assert!(
        file.contains("<D:getcontentlength>5</D:getcontentlength><D:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK"),
        "{file}"
    );
    assert!(file.contains("<nothing xmlns=\"urn:x\"/></D:prop><D:status>HTTP/1.1 404 Not Found"), "{file}");
    assert!(all.matches("<D:collection/>").count() == 4 && all.ends_with("</D:multistatus>\n"), "{all}");
    let one = find("/a%26b", "1", "").whole(207).text();
    assert!(one.contains("<D:displayname>a&amp;b</D:displayname>") && hrefs(&one) == ["/a%26b"], "{one}");
    assert_eq!(hrefs(&find("/sub", "1", "").whole(207).text()), ["/sub/"]);
    // Who goes into all folders would never come to an end.
    assert_eq!(hrefs(&find("/loops/", "1", "").whole(207).text()), ["/loops/", "/loops/beside/", "/loops/inner/"]);
    assert_eq!(hrefs(&find("/loops/inner/", "1", "").whole(207).text()), ["/loops/inner/", "/loops/inner/sub/"]);
    assert_eq!(hrefs(&find("/loops/self/", "0", "").whole(207).text()), ["/loops/self/"]);
    find("/nothing", "0", "").whole(404);
    for bad in ["<", "<propfind/>", "<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><propfind xmlns='DAV:'/>"] {
        find("/", "0", bad).whole(400);
    }
    assert_eq!(find("/", "0", &"x".repeat(100_000)).status, 413);
}

#[test]
fn rclone_copies_what_is_in_an_archive() {
    if !have("rclone") {
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("tree/sub/deep")).unwrap();
    fs::write(scratch.path("tree/sub/deep/long"), content(3_000_000, 1)).unwrap();
    scratch.shell(
        "for i in $(seq 600); do echo $i > tree/sub/$i; done; echo x > 'tree/sub/a & b %41 ä.txt'; cp -r tree packed
         tar -C tree -cf packed/inner.tar sub/1 sub/2; tar -C packed -czf a.tar.gz .
         mkdir tree/inner.tar; tar -C tree/inner.tar -xf packed/inner.tar; echo secret:words > users",
    );
    let served = Served::new(&scratch, ["-r", "--login-file", "users", "a.tar.gz"]);
    let copied = Command::new("rclone")
        .args([
            "copy",
            ":webdav:",
            "out",
            "--webdav-url",
            &served.url(),
            "--webdav-user",
            "secret",
            "--config",
            "/dev/null",
        ])
        .args(["--webdav-pass", scratch.shell("rclone obscure words").trim()])
        .current_dir(scratch.path(""))
        .output()
        .unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    scratch.shell("diff -r tree out");
    assert_eq!(served.end(), Some(0));
}
