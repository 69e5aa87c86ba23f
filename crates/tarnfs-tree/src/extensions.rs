//! Which files are taken for archives (`--recursive-extensions`): by the ends of their names, as globs and as sets of
//! them. What a file holds is only looked at if its name says that it may be one.

/// One rule: later ones override earlier ones.
#[derive(Debug)]
enum Rule {
    /// A glob for the end of a name, from a dot on, in lower case; whether it takes names in or out.
    Glob(Vec<u8>, bool),
    /// The first part of a file that was split.
    FirstPart(bool),
    /// A message in a maildir.
    Maildir(bool),
    /// Whatever is a member of the archive itself.
    Members,
}

/// All rules, in the order in which they were given.
#[derive(Debug)]
pub(crate) struct Extensions(Vec<Rule>);

/// Sets of extensions, by the names that `--recursive-extensions` knows them by.
const SETS: &[(&str, &str)] = &[
    (
        "archive",
        "7z 7zip ar asar cab cb7 cbr cbt cbz cpio esd rar sfs sif snap sqfs sqlar sqsh squashfs tar wim xar zip \
         taz tb2 tbz tbz2 tbzip2 tdeflate tgrz tgrzip tgz tgzip tlrz tlrzip tlz tlz4 tlzip tlzma tlzo tlzop tpzstd trpm tuu \
         txz tz tz2 tzlib tzst tzstd tzz \
         tar.br tar.bz2 tar.bzip2 tar.deflate tar.grz tar.grzip tar.gz tar.gzip tar.lrz tar.lrzip tar.lz tar.lz4 tar.lzip \
         tar.lzma tar.lzo tar.lzop tar.pzstd tar.rpm tar.sz tar.uu tar.xz tar.z tar.zlib tar.zst tar.zstd tar.zz",
    ),
    ("binary", "a apk appimage appv appx appxbundle deb ipa jar lib nupkg vsix whl xpi"),
    (
        "compressed",
        "br bz2 bzip2 deflate grz grzip gz gzip lrz lrzip lz lz4 lzip lzma lzo lzop pzstd rpm sz uu xz z zlib zst zstd zz",
    ),
    ("disk", "dd dmg erofs ext4 fat fat12 fat16 fat32 hfs hfsx img iso qcow qcow2 raw simg udf vhd vhdx vmdk"),
    (
        "document",
        "3mf aasx amlx appv cddx cspkg docm docx dotm dotx dwf dwfx epub familyx fdix htm html index.sqlite jtx kmlz mmzx odg \
         ods odt oxps pbit pbix pdf potm potx ppsm ppsx pptm pptx scdoc semblio slx smpk usdz vsdm vsdx vssm vssx vstm vstx \
         wacz warc xlsm xlsx xltm xltx xps",
    ),
    (MAILBOX, "eml mbox mbx"),
    ("multimedia", "avi mk3d mka mks mkv mp4 ogm ogv rmb rmvb webm"),
];

/// The name of the set of first parts of split files.
const SPLIT: &str = "split";

/// The name of the set of mail, to which the messages of a maildir belong.
const MAILBOX: &str = "mailbox";

/// What stands for the members of the archive itself, whatever their names are; not those of archives in it. Nobody
/// types it: it is what an archive with container images is read with.
pub(crate) const MEMBERS: &str = "/image";

impl Extensions {
    /// From values of the option; a comma stands between the items of one, two for one that is meant. The error names
    /// what is unknown.
    pub(crate) fn new(values: &[String]) -> Result<Self, String> {
        let mut rules = Vec::new();
        for item in values.iter().flat_map(|value| items(value)) {
            let (mut name, mut takes_in) = (item.as_str(), true);
            while let Some(before) = name.strip_suffix("/-") {
                (name, takes_in) = (before, !takes_in);
            }
            let Some(set) = name.strip_prefix('/').map(|set| set.trim_end_matches('/')) else {
                rules.push(Rule::Glob(with_dot(name), takes_in));
                continue;
            };
            if set == SPLIT {
                rules.push(Rule::FirstPart(takes_in));
                continue;
            }
            if item == MEMBERS {
                rules.push(Rule::Members);
                continue;
            }
            let known = SETS.iter().filter(|(name, _)| *name == set || set == "all");
            let extensions: Vec<_> = known.flat_map(|(_, extensions)| extensions.split_whitespace()).collect();
            if extensions.is_empty() {
                let sets: Vec<_> = SETS.iter().map(|(name, _)| format!("/{name}")).collect();
                return Err(format!(
                    "{name}: there is no set of that name; there are {}, /{SPLIT}, /all",
                    sets.join(", ")
                ));
            }
            rules.extend(extensions.into_iter().map(|extension| Rule::Glob(with_dot(extension), takes_in)));
            if set == "all" {
                rules.push(Rule::FirstPart(takes_in));
            }
            if set == "all" || set == MAILBOX {
                rules.push(Rule::Maildir(takes_in));
            }
        }
        Ok(Self(rules))
    }

    /// The ends of names that are no globs. Of the first part of a split file, those that are in use.
    pub(crate) fn literal(&self) -> impl Iterator<Item = &[u8]> {
        const FIRST: &[&[u8]] = &[b".001", b".000", b".aa", b".00", b".01", b".0001", b".0000", b".aaa"];
        self.0.iter().flat_map(|rule| {
            let glob = match rule {
                Rule::Glob(glob, true) if !glob.iter().any(|byte| b"*?[".contains(byte)) => Some(glob.as_slice()),
                _ => None,
            };
            let first = if let Rule::FirstPart(true) = rule { FIRST } else { &[] };
            glob.into_iter().chain(first.iter().copied())
        })
    }

    /// True if members of the archive itself are candidates whatever their names are.
    pub(crate) fn takes_members(&self) -> bool {
        self.0.iter().any(|rule| matches!(rule, Rule::Members))
    }

    /// Length of `name` without what makes it a candidate: the longest end that a rule names, as long as something
    /// stays. `None` if it is none.
    pub(crate) fn stem(&self, name: &[u8]) -> Option<usize> {
        let lower = name.to_ascii_lowercase();
        let mut stem: Option<usize> = None;
        for rule in &self.0 {
            // A name that is known by its end is none of a message.
            if matches!(rule, Rule::Maildir(_)) && stem.is_some_and(|length| length < name.len()) {
                continue;
            }
            let (end, takes_in) = match rule {
                Rule::Glob(glob, takes_in) => (end_that_matches(glob, &lower), *takes_in),
                Rule::FirstPart(takes_in) => (end_of_first_part(&lower), *takes_in),
                Rule::Maildir(takes_in) => (is_of_maildir(&lower).then_some(lower.len()), *takes_in),
                Rule::Members => continue,
            };
            let Some(start) = end else { continue };
            stem = match (takes_in, stem) {
                (false, _) => None,
                // A name that is nothing but an extension keeps it.
                (true, Some(other)) => Some(if start == 0 { other } else { other.min(start) }),
                (true, None) => Some(if start == 0 { name.len() } else { start }),
            };
        }
        // A folder of one of these names is another one.
        stem.map(|length| if matches!(name.get(..length), Some(b"." | b"..")) { name.len() } else { length })
    }
}

/// The items of one value.
fn items(value: &str) -> Vec<String> {
    // A character that no command line can have stands for a comma that is meant.
    value
        .replace(",,", "\0")
        .split(',')
        .map(|item| item.trim().replace('\0', ","))
        .filter(|item| !item.is_empty())
        .collect()
}

fn with_dot(glob: &str) -> Vec<u8> {
    let lower = glob.to_ascii_lowercase();
    match lower.as_str() {
        // Whatever its name is.
        "*" => b"*".to_vec(),
        lower if lower.starts_with('.') => lower.as_bytes().to_vec(),
        lower => [b".", lower.as_bytes()].concat(),
    }
}

/// Where the end of `name` begins that `glob` matches: the shortest one.
fn end_that_matches(glob: &[u8], name: &[u8]) -> Option<usize> {
    if glob == b"*" {
        return Some(name.len());
    }
    if !glob.iter().any(|byte| b"*?[".contains(byte)) {
        return name.ends_with(glob).then(|| name.len() - glob.len());
    }
    (0..name.len()).rev().find(|&start| name[start] == b'.' && matches(glob, &name[start..]))
}

/// `.aa`, `.00`, `.001`, ...: what `split` and its like call the first part.
fn end_of_first_part(name: &[u8]) -> Option<usize> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let end = &name[dot + 1..];
    let is_first = match end {
        [] => false,
        end if end.iter().all(|&byte| byte == b'a') => true,
        [zeros @ .., b'0' | b'1'] => zeros.iter().all(|&byte| byte == b'0'),
        _ => false,
    };
    is_first.then_some(dot)
}

/// True of a name that a message has in a maildir: `1700000001.M12P34.host:2,S`, where what begins with the colon may
/// be absent. See <https://cr.yp.to/proto/maildir.html>. Its flags are no ending that could be taken away.
fn is_of_maildir(name: &[u8]) -> bool {
    // A second since 1970 has that many digits since 1973.
    const DIGITS: std::ops::RangeInclusive<usize> = 9..=12;
    let mut parts = name.splitn(3, |&byte| byte == b'.');
    let (Some(second), Some(unique), Some(host)) = (parts.next(), parts.next(), parts.next()) else { return false };
    DIGITS.contains(&second.len()) && second.iter().all(u8::is_ascii_digit) && !unique.is_empty() && !host.is_empty()
}

/// True if `glob` (`*`, `?`, `[abc]`, `[a-z]`, `[!a]`) matches all of `text`.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    // Where to go on if what follows the last `*` does not match: no more than one place is ever needed.
    let (mut at, mut from, mut again) = (0, 0, None);
    loop {
        if glob.get(at) == Some(&b'*') {
            at += 1;
            again = Some((at, from));
        } else if let Some(&byte) = text.get(from)
            && let Some(next) = one(&glob[at.min(glob.len())..], byte)
        {
            (at, from) = (at + next, from + 1);
        } else if from == text.len() && at == glob.len() {
            return true;
        } else if let Some((star, start)) = again.filter(|&(_, start)| start < text.len()) {
            again = Some((star, start + 1));
            (at, from) = (star, start + 1);
        } else {
            return false;
        }
    }
}

/// Length of the item at the start of `glob`, if it matches `byte`.
fn one(glob: &[u8], byte: u8) -> Option<usize> {
    match *glob.first()? {
        b'?' => Some(1),
        b'[' => {
            let is_not = matches!(glob.get(1), Some(b'!' | b'^'));
            let start = 1 + usize::from(is_not);
            // A bracket that comes first is meant; one that never ends stands for itself.
            let Some(length) = glob.iter().skip(start + 1).position(|&byte| byte == b']') else {
                return (byte == b'[').then_some(1);
            };
            let set = &glob[start..=start + length];
            let mut found = false;
            let mut rest = set;
            while let [first, after @ ..] = rest {
                if let [b'-', last, after @ ..] = after {
                    found |= (*first..=*last).contains(&byte);
                    rest = after;
                } else {
                    found |= *first == byte;
                    rest = after;
                }
            }
            (found != is_not).then_some(start + length + 2)
        }
        other => (other == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stem(values: &[&str], name: &str) -> Option<String> {
        let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
        let length = Extensions::new(&values).unwrap().stem(name.as_bytes())?;
        Some(name[..length].to_owned())
    }

    /// As ratarmount 1.3 has it.
    #[test]
    fn names_are_candidates_by_their_ends() {
        let default = crate::DEFAULT_EXTENSIONS.as_slice();
        for (values, name, expected) in [
            (default, "a.tar", Some("a")),
            (default, "a.TAR.GZ", Some("a")),
            (default, "a.b.tgz", Some("a.b")),
            (default, "a.gz", Some("a")),
            (default, "a.txt", None),
            (default, "tar", None),
            // What would be left is no name.
            (default, "..tar", Some("..tar")),
            (default, "...tar", Some("...tar")),
            (default, "...tar.gz", Some("...tar.gz")),
            (default, "....tar", Some("...")),
            (default, ".tar", Some(".tar")),
            (default, "x.aa", Some("x")),
            (default, "x.001", Some("x")),
            (default, "x.ab", None),
            (default, "x.pdf", None),
            // These are ours.
            (&["/binary"], "x.ipa", Some("x")),
            (&["/binary"], "tarnfs-0.1.0-py3-none-any.whl", Some("tarnfs-0.1.0-py3-none-any")),
            (&["/archive"], "a.gz", None),
            (&["/archive,.gz*"], "a.gz1", Some("a")),
            (&["/archive", "zip/-"], "a.zip", None),
            (&["/all,/multimedia/-"], "a.mkv", None),
            (&["/all,/multimedia/-"], "a.pdf", Some("a")),
            (&[".t?r"], "a.tXr", Some("a")),
            (&["*"], "anything", Some("anything")),
            (&["a,,b"], "x.a,b", Some("x")),
            (&["[!a-c]z"], "x.dz", Some("x")),
            (&["[!a-c]z"], "x.bz", None),
            (&[".gz/-/-"], "x.gz", Some("x")),
            (&["/mailbox"], "x.MBOX", Some("x")),
            (&["/mailbox"], "1700000001.M1P1.host:2,RS", Some("1700000001.M1P1.host:2,RS")),
            (&["/mailbox"], "1700000001.M1P1.host", Some("1700000001.M1P1.host")),
            (&["/all"], "1700000001.M1P1.host", Some("1700000001.M1P1.host")),
            (&["/mailbox,/mailbox/-"], "1700000001.M1P1.host", None),
            (&["/archive,/mailbox/-"], "1700000001.backup.tar", Some("1700000001.backup")),
            (&["/archive,/mailbox"], "1700000001.backup.tar", Some("1700000001.backup")),
            (&["/mailbox"], "20240101.data.txt", None),
            (&["/mailbox"], "1700000001.txt", None),
            (&["/mailbox"], "1700000001..host", None),
            (default, "1700000001.M1P1.host", None),
            (default, "x.mbox", None),
        ] {
            assert_eq!(stem(values, name).as_deref(), expected, "{values:?} {name}");
        }
        assert!(Extensions::new(&["/pictures".to_owned()]).unwrap_err().contains("/pictures"));
    }

    /// A format whose files nothing takes for archives is not found in an archive.
    #[test]
    fn each_end_of_the_name_of_a_format_is_in_a_set_or_has_a_reason() {
        const EXCEPTIONS: &[(&str, &str)] = &[
            ("swm", "what its other parts hold is not read"),
            ("mtree", "what its files hold lies elsewhere"),
            ("xhtml ogg oga ogx opus spx", "a page or a sound is a file, as in ratarmount"),
            (
                "war ear aab odp kmz msix pkg mpkg xip udeb ddeb srpm spm",
                "a package or document that ratarmount leaves",
            ),
            ("arj lzh lha lzs", "as in ratarmount, which does not read them"),
            (
                "vfat ima vfd mbr gpt ext2 ext3 exfat hfsplus ntfs",
                "as in ratarmount; what holds a file system is mostly an img",
            ),
        ];
        let all = Extensions::new(&["/all".to_owned()]).unwrap();
        let exceptions: Vec<_> = EXCEPTIONS.iter().flat_map(|(ends, _)| ends.split_whitespace()).collect();
        for suffix in tarnfs_format::FORMATS.iter().flat_map(|format| format.suffixes()) {
            let is_in_a_set = all.stem(format!("x{suffix}").as_bytes()).is_some();
            let is_exception = exceptions.contains(&&suffix[1..]);
            assert!(is_in_a_set != is_exception, "{suffix} is in a set: {is_in_a_set}");
        }
        for (set, name) in [("/archive", "x.wim"), ("/archive", "x.ESD"), ("/disk", "x.qcow")] {
            assert_eq!(stem(&[set], name).as_deref(), Some("x"));
        }
    }

    /// As in glob(7); a bracket that never ends stands for itself.
    #[test]
    fn globs_match_what_a_shell_matches() {
        for (glob, yes, no) in [
            (&b"a?c"[..], &[&b"abc"[..], b"a?c"][..], &[&b"ac"[..], b"abbc"][..]),
            (b"*.[tT]ar", &[b"x.tar", b".Tar", b"a.b.tar"], &[b"x.[ar", b"tar", b"x.tarx"]),
            (b"[a-c]1", &[b"a1", b"b1", b"c1"], &[b"d1", b"-1", b"1"]),
            (b"[!a-c]1", &[b"d1", b"-1"], &[b"a1", b"c1", b"1"]),
            (b"[^x]", &[b"y", b"^"], &[b"x", b""]),
            (b"[]x]", &[b"]", b"x"], &[b"[", b"]x]"]),
            (b"[x-]", &[b"x", b"-"], &[b"y"]),
            (b"a[b", &[b"a[b"], &[b"ab", b"axb", b"a"]),
            (b"[", &[b"["], &[b"x", b""]),
            (b"*[*", &[b"a[b", b"["], &[b"ab", b""]),
        ] {
            let shown = String::from_utf8_lossy(glob);
            for (texts, is_match) in [(yes, true), (no, false)] {
                for text in texts {
                    assert_eq!(matches(glob, text), is_match, "{shown}: {}", String::from_utf8_lossy(text));
                }
            }
        }
    }

    #[test]
    fn globs_do_not_take_long() {
        let glob = b".*a*a*a*a*a*a*a*a*a*a*a*b";
        assert!(!matches(glob, &[b".".to_vec(), b"a".repeat(250)].concat()));
    }
}
