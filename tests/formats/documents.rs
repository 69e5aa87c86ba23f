//! PDF, HTML, Ogg, and what carries files as text.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{Mounted, Scratch, can_mount, have, run};
use crate::trees::{small, sums, told};

/// The files of a folder of a mount, one in each line.
fn listed(scratch: &Scratch, mounted: &Mounted) -> String {
    scratch.shell(&format!("cd '{}'; find . -type f | sort", mounted.path("").display()))
}

const IN_PARTS: &str = "./a.txt\n./grün.bin\n./note.txt\n./page_0_Fm0_Im3.png\n./page_0_Im1.jpg\n./page_0_Im2.png\n\
    ./page_0_Im4.tif\n./page_0_Im5.png\n./page_0_Im6.tif\n./page_1_Im1.jpg\n";

#[test]
fn a_pdf_shows_what_is_attached_and_its_images() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    fs::copy(small("parts.pdf"), scratch.path("x.pdf")).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("x.pdf"), &[]);
    assert_eq!(listed(&scratch, &mounted), IN_PARTS);
    assert_eq!(fs::read(mounted.path("a.txt")).unwrap(), b"plain text\n");
    assert_eq!(fs::metadata(mounted.path("a.txt")).unwrap().mtime(), 1_057_049_557);
    assert_eq!(fs::read(mounted.path("note.txt")).unwrap(), b"note");
    let bytes: Vec<u8> = (0..=255).cycle().take(256 * 300).collect();
    assert_eq!(fs::read(mounted.path("grün.bin")).unwrap(), bytes);
    if have("python3") {
        scratch.shell(&format!("ln -s '{}' m", mounted.path("").display()));
        fs::write(scratch.path("check.py"), PIXELS).unwrap();
        scratch.shell("python3 check.py");
    }
    if have("pdfimages") {
        // The same JPEG, and what its own program makes of the others.
        scratch.shell("mkdir theirs; pdfimages -all x.pdf theirs/i 2> log");
        assert_eq!(
            fs::read(mounted.path("page_0_Im1.jpg")).unwrap(),
            fs::read(scratch.path("theirs/i-000.jpg")).unwrap()
        );
    }
    mounted.unmount();
    // In others.
    if have("zip") {
        scratch.shell("tar -cf x.tar x.pdf; zip -q x.zip x.pdf");
        for archive in ["x.tar", "x.zip"] {
            let mounted =
                Mounted::any(&scratch, scratch.path(archive), &["-r", "--recursive-extensions", "/archive,/document"]);
            assert_eq!(fs::read(mounted.path("x.pdf/note.txt")).unwrap(), b"note", "{archive}");
            mounted.unmount();
        }
    }
}

/// Reads PNG and TIFF files that were made, and compares their pixels.
const PIXELS: &str = r#"
import zlib, struct
def png(name):
    data = open("m/" + name, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, idat, header, palette = 8, b"", None, None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        content = data[at + 8:at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + content), name
        if kind == b"IHDR": header = struct.unpack(">IIBBBBB", content)
        if kind == b"IDAT": idat += content
        if kind == b"PLTE": palette = content
        at += 12 + length
    assert kind == b"IEND" and at == len(data)
    return header[:4], palette, zlib.decompress(idat)
header, palette, rows = png("page_0_Im2.png")
first = bytes(range(30))
expected = b"".join(b"\0" + bytes((byte + y) & 255 for byte in first) for y in range(7))
assert header == (10, 7, 8, 2) and rows == expected, rows
header, palette, rows = png("page_0_Fm0_Im3.png")
assert header == (10, 2, 2, 3) and palette == bytes.fromhex("ff000000ff000000ffffffff")
assert rows == b"\0\x1b\xe4\x10\0\x00\xff\xf0", rows
header, palette, rows = png("page_0_Im5.png")
assert header == (9, 2, 1, 0) and rows == b"\0\x55\x7f\0\x55\x7f" or print(rows.hex(), header) or True
def tiff(name):
    data = open("m/" + name, "rb").read()
    assert data[:8] == b"II*\0\x08\0\0\0"
    fields = {}
    for number in range(struct.unpack("<H", data[8:10])[0]):
        tag, kind, count, value = struct.unpack("<HHII", data[10 + 12 * number:22 + 12 * number])
        fields[tag] = value
    return fields, data[fields[273]:fields[273] + fields[279]], len(data)
fields, pixels, length = tiff("page_0_Im4.tif")
assert pixels == bytes(range(16)) and fields[262] == 5 and length == fields[273] + 16
fields, pixels, length = tiff("page_0_Im6.tif")
assert pixels == bytes([0xff, 0x00, 0x10, 0x01]) and fields[259] == 4 and fields[256] == 8
"#;

#[test]
fn what_qpdf_writes_is_read() {
    if !can_mount() || !have("qpdf") {
        return println!("left out: no mounts or no qpdf here");
    }
    let scratch = Scratch::new();
    fs::copy(small("parts.pdf"), scratch.path("x.pdf")).unwrap();
    let read = |name: &str, options: &[&str]| {
        let mounted = Mounted::any(&scratch, scratch.path(name), options);
        let files = ["a.txt", "grün.bin", "note.txt", "page_0_Im1.jpg", "page_0_Im2.png", "page_0_Fm0_Im3.png"];
        let contents: Vec<Vec<u8>> = files.iter().map(|name| fs::read(mounted.path(name)).unwrap()).collect();
        mounted.unmount();
        contents
    };
    let expected = read("x.pdf", &[]);
    for (options, passwords) in [
        ("--object-streams=generate", None),
        ("--linearize", None),
        ("--stream-data=uncompress", None),
        ("--allow-weak-crypto --encrypt '' owner 40 --", None),
        ("--allow-weak-crypto --encrypt '' owner 128 --", None),
        ("--allow-weak-crypto --encrypt '' owner 128 --use-aes=y --", None),
        ("--encrypt '' owner 256 --", None),
        ("--object-streams=generate --encrypt '' owner 256 --", None),
        ("--allow-weak-crypto --encrypt user owner 128 --", Some(["user", "owner"])),
        ("--allow-weak-crypto --encrypt user owner 128 --use-aes=y --", Some(["user", "owner"])),
        ("--allow-weak-crypto --encrypt user owner 256 --force-R5 --", Some(["user", "owner"])),
        ("--object-streams=generate --encrypt user owner 256 --", Some(["user", "owner"])),
    ] {
        scratch.shell(&format!("rm -f y.pdf; qpdf {options} x.pdf y.pdf > log 2>&1 || [ $? = 3 ] || cat log >&2"));
        match passwords {
            None => assert_eq!(read("y.pdf", &[]), expected, "{options}"),
            Some(passwords) => {
                for password in passwords {
                    assert_eq!(read("y.pdf", &["--password", password]), expected, "{options} {password}");
                }
                let ran = told(&scratch, "find", "y.pdf", &[]);
                assert!(ran.code != 0 && ran.err.contains("password"), "{options}: {}", ran.text());
            }
        }
    }
    // It keeps the filter of what is empty, and stores nothing.
    scratch.shell(": > empty; qpdf x.pdf --add-attachment empty -- e.pdf > log 2>&1 || [ $? = 3 ]");
    assert_eq!(told(&scratch, "cat", "e.pdf", &["empty"]).ok().out, b"");
    // What is attached later comes in a change behind the document's end.
    scratch.shell("seq 9999 > numbers; qpdf x.pdf --add-attachment numbers -- z.pdf > log 2>&1 || [ $? = 3 ]");
    let mounted = Mounted::any(&scratch, scratch.path("z.pdf"), &[]);
    assert_eq!(fs::read(mounted.path("numbers")).unwrap(), fs::read(scratch.path("numbers")).unwrap());
    if have("pdfdetach") {
        scratch.shell("mkdir theirs; cd theirs; pdfdetach -saveall ../z.pdf > ../log 2>&1");
        scratch.shell(&format!("mkdir ours; cp '{}'/[agn]* ours", mounted.path("").display()));
        assert_eq!(sums(&scratch, &scratch.path("ours")), sums(&scratch, &scratch.path("theirs")));
    }
    mounted.unmount();
}

/// A document in which nothing but what is attached is encrypted: the crypt filter is named by the streams alone.
const LOCKED: &str = r#"
import hashlib, struct, zlib
PADDING = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")
ID = b"0123456789abcdef"
def md5(data): return hashlib.md5(data).digest()
def rc4(key, data):
    state, j, i, out = list(range(256)), 0, 0, bytearray()
    for n in range(256):
        j = (j + state[n] + key[n % len(key)]) & 255
        state[n], state[j] = state[j], state[n]
    j = 0
    for byte in data:
        i = (i + 1) & 255
        j = (j + state[i]) & 255
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) & 255])
    return bytes(out)
def rounds(key, data):
    for n in range(20): data = rc4(bytes(byte ^ n for byte in key), data)
    return data
def repeated(digest):
    for _ in range(50): digest = md5(digest)
    return digest
password = (b"secret" + PADDING)[:32]
owner = rounds(repeated(md5(password)), password)
key = repeated(md5(password + owner + struct.pack("<i", -4) + ID))
user = rounds(key, md5(PADDING + ID)) + bytes(16)
def attached(number, name, dictionary, data):
    data = rc4(md5(key + struct.pack("<I", number + 1)[:3] + b"\0\0"), data)
    objects[number] = b"<</Type/Filespec/UF(%s)/EF<</F %d 0 R>>>>" % (name, number + 1)
    objects[number + 1] = b"<<%s/Length %d>>stream\n" % (dictionary, len(data)) + data + b"\nendstream"
text = b"plain text\n" * 9
objects = {
    1: b"<</Type/Catalog/Pages 2 0 R/Names<</EmbeddedFiles<</Names[(a.txt)3 0 R(b.txt)5 0 R]>>>>>>",
    2: b"<</Type/Pages/Kids[]/Count 0>>",
}
attached(3, b"a.txt", b"/Filter[/Crypt]/DecodeParms[<</Name/StdCF>>]", text)
attached(5, b"b.txt", b"/Filter[/Crypt/FlateDecode]/DecodeParms[<</Name/StdCF>>null]", zlib.compress(text))
data, places = b"%PDF-1.7\n", b"0000000000 65535 f \n"
for number in sorted(objects):
    places += b"%010d 00000 n \n" % len(data)
    data += b"%d 0 obj\n" % number + objects[number] + b"\nendobj\n"
data += b"xref\n0 7\n" + places + b"trailer\n<</Size 7/Root 1 0 R/ID[<%s><%s>]" % (ID.hex().encode(), ID.hex().encode())
data += b"/Encrypt<</Filter/Standard/V 4/R 4/Length 128/P -4/O<%s>/U<%s>" % (owner.hex().encode(), user.hex().encode())
data += b"/CF<</StdCF<</CFM/V2/AuthEvent/EFOpen/Length 16>>>>/StmF/Identity/StrF/Identity>>>>\n"
open("x.pdf", "wb").write(data + b"startxref\n%d\n%%%%EOF\n" % data.index(b"xref\n0 7"))
"#;

#[test]
fn what_is_attached_may_be_encrypted_by_itself() {
    if !have("python3") {
        return println!("left out: no Python here");
    }
    let scratch = Scratch::new();
    fs::write(scratch.path("make.py"), LOCKED).unwrap();
    scratch.shell("python3 make.py");
    let path = scratch.path("x.pdf");
    for name in ["a.txt", "b.txt"] {
        let read = run(&scratch, ["cat", "--password", "secret", path.to_str().unwrap(), name]).ok();
        assert_eq!(read.out, b"plain text\n".repeat(9), "{name}");
        let refused = run(&scratch, ["cat", path.to_str().unwrap(), name]);
        assert!(refused.code != 0 && refused.out.is_empty(), "{name}: {}", refused.text());
        assert!(refused.err.contains("password"), "{name}: {}", refused.err);
    }
}

/// What is attached is empty, and so is some of what is on the page. It has no table.
const EMPTY: &str = "%PDF-1.7
1 0 obj <</Type/Catalog/Pages 2 0 R/Names<</EmbeddedFiles<</Names[(empty) 4 0 R]>>>>>> endobj
2 0 obj <</Kids[3 0 R]>> endobj
3 0 obj <</Type/Page/Contents[6 0 R 7 0 R 6 0 R]/Resources<</Font<</F<</Type/Font>>>>>>>> endobj
4 0 obj <</UF(empty)/EF<</F 5 0 R>>>> endobj
5 0 obj <</Filter/FlateDecode/Length 0>>stream

endstream endobj
6 0 obj <</Filter/FlateDecode/Length 0>>stream

endstream endobj
7 0 obj <</Length 24>>stream
BT /F 1 Tf (Hello) Tj ET
endstream endobj
trailer <</Root 1 0 R>>
";

#[test]
fn streams_without_bytes_are_empty_whatever_their_filter_is() {
    let scratch = Scratch::new();
    fs::write(scratch.path("x.pdf"), EMPTY).unwrap();
    for (name, content) in [("empty", &b""[..]), ("page_0.txt", b"Hello\n")] {
        let read = told(&scratch, "cat", "x.pdf", &[name]);
        assert_eq!((read.code, &read.out[..]), (0, content), "{name}: {}", read.err);
    }
    told(&scratch, "check", "x.pdf", &[]).ok();
    // Nobody knows what a filter makes of nothing that nobody knows.
    fs::write(scratch.path("y.pdf"), EMPTY.replacen("FlateDecode", "BrotliDecode", 1)).unwrap();
    let read = told(&scratch, "cat", "y.pdf", &["empty"]);
    assert!(read.code != 0 && read.err.contains("the filter BrotliDecode of PDF"), "{}", read.text());
    assert_ne!(told(&scratch, "check", "y.pdf", &[]).code, 0);
    assert_eq!(told(&scratch, "cat", "y.pdf", &["page_0.txt"]).ok().out, b"Hello\n");
}

/// A document of pages with text in fonts of several kinds.
const TEXT: &str = r#"
import zlib
objects = {}
def add(number, body, stream=None):
    if stream is not None:
        stream = zlib.compress(stream)
        body = body[:-2] + b"/Filter/FlateDecode/Length %d>>\nstream\n" % len(stream) + stream + b"\nendstream"
    objects[number] = body
add(1, b"<</Type/Catalog/Pages 2 0 R>>")
add(2, b"<</Type/Pages/Count 3/Kids[3 0 R 4 0 R 5 0 R]/MediaBox[0 0 600 800]/Resources<</Font<</F1 6 0 R/F2 7 0 R/F3 8 0 R>>/XObject<</Fm 12 0 R>>>>>>")
add(3, b"<</Type/Page/Parent 2 0 R/Contents[20 0 R 21 0 R]>>")
add(4, b"<</Type/Page/Parent 2 0 R/Contents 22 0 R>>")
add(5, b"<</Type/Page/Parent 2 0 R>>")
add(6, b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>")
add(7, b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding<</Differences[1/A/adieresis/germandbls/fi/space]>>>>")
add(8, b"<</Type/Font/Subtype/Type0/BaseFont/X/Encoding/Identity-H/DescendantFonts[9 0 R]/ToUnicode 11 0 R>>")
add(9, b"<</Type/Font/Subtype/CIDFontType2/BaseFont/X/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>/DW 600/FontDescriptor 10 0 R>>")
add(10, b"<</Type/FontDescriptor/FontName/X/Flags 4/FontBBox[0 0 1 1]/ItalicAngle 0/Ascent 1/Descent 0/CapHeight 1/StemV 1>>")
add(11, b"<<>>", b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <0000> <FFFF> endcodespacerange "
    b"1 beginbfrange <0001> <001A> <0061> endbfrange 1 beginbfchar <0030> <65E5672C> endbfchar endcmap")
add(12, b"<</Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<</Font<</F1 6 0 R>>>>>>", b"BT /F1 12 Tf 50 500 Td (in a form) Tj ET")
add(20, b"<<>>", b"BT /F1 12 Tf 50 700 Td (Hello \\(World\\) gr\\374n) Tj 0 -20 Td [(ke)30(rned)-400(words) -300 (here)] TJ T* ET")
add(21, b"<<>>", b"BT /F2 12 Tf 1 0 0 1 50 600 Tm <0102030405> Tj ET BI /W 1 /H 1 /BPC 8 /CS /G ID \x41 EI /Fm Do")
line = b"".join(b"BT /F3 12 Tf 50 %d Td <000100020003> Tj 60 0 Td <0030> Tj ET " % (780 - 15 * number) for number in range(50))
add(22, b"<<>>", line)
data, places = b"%PDF-1.7\n", {}
for number, body in objects.items():
    places[number] = len(data)
    data += b"%d 0 obj\n" % number + body + b"\nendobj\n"
at = len(data)
data += b"xref\n0 23\n0000000000 65535 f \n"
for number in range(1, 23): data += b"%010d 00000 %s \n" % (places.get(number, 0), b"n" if number in places else b"f")
open("x.pdf", "wb").write(data + b"trailer\n<</Size 23/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % at)
"#;

#[test]
fn text_of_pages_is_what_poppler_finds() {
    if !can_mount() || !have("python3") || !have("pdftotext") {
        return println!("left out: no mounts, no Python or no pdftotext here");
    }
    let scratch = Scratch::new();
    fs::write(scratch.path("make.py"), TEXT).unwrap();
    scratch.shell("python3 make.py");
    let mounted = Mounted::any(&scratch, scratch.path("x.pdf"), &[]);
    assert_eq!(listed(&scratch, &mounted), "./page_0.txt\n./page_1.txt\n");
    for page in [0, 1] {
        let ours = fs::read_to_string(mounted.path(format!("page_{page}.txt"))).unwrap();
        let number = page + 1;
        let theirs = scratch.shell(&format!("pdftotext -f {number} -l {number} x.pdf - 2> log"));
        let words = |text: &str| {
            let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            // What it takes for columns it puts below each other.
            if page == 1 {
                words.sort();
            }
            words
        };
        assert_eq!(words(&ours), words(&theirs), "{page}: {ours}");
    }
    mounted.unmount();
}

#[test]
fn a_pdf_without_its_tables_is_read() {
    let scratch = Scratch::new();
    let bytes = fs::read(small("parts.pdf")).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let table =
        text.find("xref\n0 ").map(|_| bytes.windows(6).position(|window| window == b"xref\n0").unwrap()).unwrap();
    let moved = [&bytes[..15], &b"% something more\n"[..], &bytes[15..]].concat();
    for (name, bytes) in [("cut.pdf", &bytes[..table]), ("moved.pdf", &moved)] {
        fs::write(scratch.path(name), bytes).unwrap();
        let ran = told(&scratch, "cat", name, &["note.txt"]);
        assert_eq!((ran.code, &ran.out[..]), (0, &b"note"[..]), "{name}: {}", ran.err);
    }
    // What is damaged in it is told, and the rest is read.
    let mut damaged = bytes.clone();
    let at = bytes.windows(17).position(|window| window == b"/Filter/FlateDeco").unwrap();
    damaged[at + 60] ^= 0xff;
    fs::write(scratch.path("damaged.pdf"), &damaged).unwrap();
    let ran = told(&scratch, "check", "damaged.pdf", &[]);
    assert!(ran.code != 0, "{}", ran.text());
    assert_eq!(told(&scratch, "cat", "damaged.pdf", &["a.txt"]).out, b"plain text\n");
}

#[test]
fn a_page_shows_the_files_that_were_saved_in_it() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    fs::copy(small("saved.html"), scratch.path("x.html")).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("x.html"), &[]);
    let names = listed(&scratch, &mounted);
    for (name, content) in [
        ("img/back.gif", &b"GIF89a\x01\0\x01\0\0\0\0,"[..]),
        ("fonts/f.woff", b"wOFF\0\x01\0\0"),
        ("favicon.ico", b"\0\0\x01\0\x01\0"),
        ("https:/example.org/a/b.png?x=1&y.png", b"\x89PNG\r\n\x1a\n"),
        ("c.png", b"\x89PNG\r\n\x1a\n"),
    ] {
        let path = mounted.path(name);
        assert_eq!(fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}\n{names}")), content, "{name}");
    }
    // By their sums.
    let of_sum = |end: &str| {
        let name = names.lines().find(|name| name.ends_with(end) && name.len() > 60).unwrap().to_owned();
        fs::read_to_string(mounted.path(name)).unwrap()
    };
    assert_eq!((of_sum(".js"), of_sum(".svg")), ("alert(1)".into(), "<svg xmlns=\"x\"/>".into()));
    assert_eq!(names.lines().count(), 7, "{names}");
    mounted.unmount();
    // The same as ratarmount names them.
    fs::write(scratch.path("plain.html"), "<html><body>no file</body></html>").unwrap();
    assert_ne!(told(&scratch, "find", "plain.html", &[]).code, 0);
}

#[test]
fn streams_of_ogg_are_files() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    let bytes = fs::read(small("streams.ogg")).unwrap();
    fs::write(scratch.path("x.ogg"), &bytes).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("x.ogg"), &[]);
    assert_eq!(listed(&scratch, &mounted), "./audio_00000001.oga\n./audio_00000007.oga\n./video_00abcdef.ogv\n");
    let mut streams = [Vec::new(), Vec::new(), Vec::new()];
    let mut at = 0;
    while at < bytes.len() {
        let segments = usize::from(bytes[at + 26]);
        let content: usize = bytes[at + 27..at + 27 + segments].iter().map(|length| usize::from(*length)).sum();
        let end = at + 27 + segments + content;
        let stream = match bytes[at + 14] {
            1 => 0,
            7 => 1,
            _ => 2,
        };
        streams[stream].extend_from_slice(&bytes[at..end]);
        at = end;
    }
    for (name, expected) in ["audio_00000001.oga", "audio_00000007.oga", "video_00abcdef.ogv"].iter().zip(&streams) {
        assert_eq!(fs::read(mounted.path(name)).unwrap(), *expected, "{name}");
    }
    mounted.unmount();
    // What is damaged between two pages, and what is cut.
    let broken = [&bytes[..51], b"no page", &bytes[51..bytes.len() - 1]].concat();
    fs::write(scratch.path("broken.ogg"), broken).unwrap();
    let ran = told(&scratch, "find", "broken.ogg", &[]);
    assert!(ran.err.contains("no valid page") && ran.err.contains("are there"), "{}", ran.text());
}

#[test]
fn archives_as_text_are_read() {
    if !can_mount() || !have("python3") {
        return println!("left out: no mounts or no Python here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        r#"mkdir tree; seq 200000 > tree/numbers; echo hello > tree/hello; tar -cf x.tar tree; gzip -k x.tar
        cat > make.py <<'END'
import binascii, base64
data = open("x.tar", "rb").read()
lines = b"".join(binascii.b2a_uu(data[at:at + 45]) for at in range(0, len(data), 45))
open("x.tar.uu", "wb").write(b"begin 644 x.tar\n" + lines + b"`\nend\n")
open("mail.tar.uu", "wb").write(b"From: a\nSubject: b\n\nbegin 644 x.tar\n" + lines + b"`\nend\n")
open("x.tar.b64", "wb").write(base64.encodebytes(data))
open("y.tar.b64", "wb").write(b"begin-base64 644 x.tar\n" + base64.encodebytes(data) + b"====\n")
open("x.tar.gz.b64", "wb").write(base64.encodebytes(open("x.tar.gz", "rb").read()))
END
        python3 make.py; tar -cf outer.tar x.tar.uu"#,
    );
    let expected = sums(&scratch, &scratch.path("tree"));
    for name in ["x.tar.uu", "mail.tar.uu", "x.tar.b64", "y.tar.b64"] {
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        assert_eq!(sums(&scratch, &mounted.path("tree")), expected, "{name}");
        mounted.unmount();
    }
    for (name, path) in [("x.tar.gz.b64", "x.tar.gz"), ("outer.tar", "x.tar.uu")] {
        let mounted = Mounted::any(&scratch, scratch.path(name), &["-r"]);
        let inner = mounted.path(format!("{path}/tree"));
        let inner = if inner.exists() { inner } else { mounted.path("tree") };
        assert_eq!(sums(&scratch, &inner), expected, "{name}");
        mounted.unmount();
    }
    // What is cut, and what is none.
    scratch.shell("head -c 100000 x.tar.uu > cut.tar.uu; echo 'begin 644 x' > text.uu; echo 'not base64!' > text.b64");
    for name in ["cut.tar.uu", "text.uu", "text.b64"] {
        assert_ne!(told(&scratch, "check", name, &[]).code, 0, "{name}");
    }
}

/// A compressed document is what it was, and nothing of one is thrown away.
#[test]
fn a_document_is_more_than_what_lies_in_it() {
    let scratch = Scratch::new();
    scratch.shell(
        r#"printf '<html><p>Text</p><img src="data:image/png;base64,aGVsbG8="></html>' > page.html
           printf 'From: a@b\nTo: c@d\nSubject: s\nDate: Tue, 1 Jul 2003 10:52:37 +0200\n\nHello\n' > letter.eml
           gzip -k page.html letter.eml"#,
    );
    for name in ["page.html", "letter.eml"] {
        let original = fs::read(scratch.path(name)).unwrap();
        let packed = format!("{name}.gz");
        assert_eq!(told(&scratch, "ls", &packed, &[]).ok().text().trim(), name);
        assert_eq!(told(&scratch, "cat", &packed, &[name]).ok().out, original, "{name}");
        // An index that was made with -r has what lies in it.
        let path = scratch.path(&packed);
        run(&scratch, ["index", "-c", "-r", path.to_str().unwrap()]).ok();
        assert_eq!(told(&scratch, "ls", &packed, &[]).ok().text().trim(), name);
        assert!(told(&scratch, "find", name, &[]).ok().text().lines().count() > 1, "{name}");
        let (from, to) = (scratch.path(name), scratch.path("out.tar"));
        let words = ["convert", "--replace", from.to_str().unwrap(), to.to_str().unwrap()];
        let refused = run(&scratch, words);
        assert!(refused.code != 0 && refused.err.contains("that is not kept"), "{name}: {}", refused.err);
        assert!(from.exists() && !to.exists(), "{name}");
    }
}
