//! Which files are the parts of one archive, whatever they lie in: a folder, or another archive.
//!
//! Either the parts are numbered behind a name (`x.7z.001`, `x.tar.gz.aa`) and are simply to be joined, or a format has
//! names of its own, of which the last one ([`VolumesByLast`]) or the first one ([`VolumesByFirst`]) is known.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use tarnfs_format::{FORMATS, Volume, VolumesByFirst, VolumesByLast};
use tarnfs_source::{FileSource, SharedSource, Source};

use crate::problem::Problem;

/// Behind a part that is not there, so many others are looked for, to tell a gap from the end.
const LOOKED_FOR: usize = 8;

/// What is said of a file that may not be a part of others ([`crate::readers::Readers::may_share`]).
pub(crate) const OF_ANOTHER: &str = " (another user's file, which not all may read, is none)";

/// One of the files that lie beside each other.
pub(crate) trait File: Clone {
    /// Its bytes.
    fn source(&self) -> &dyn Source;

    /// How many these are.
    fn length(&self) -> u64 {
        self.source().len()
    }

    /// What it says of itself as a volume of `format`. Each of many may ask all of them.
    fn volume(&self, format: &dyn VolumesByFirst) -> io::Result<Option<Volume>> {
        format.volume(self.source())
    }
}

impl File for Arc<FileSource> {
    fn source(&self) -> &dyn Source {
        &**self
    }
}

impl File for SharedSource {
    fn source(&self) -> &dyn Source {
        &**self
    }
}

/// The file of that name, if there is one.
pub(crate) type Open<'o, F> = dyn Fn(&[u8]) -> Result<Option<F>, Problem> + 'o;

/// The parts of an archive.
#[derive(Debug)]
pub(crate) struct Found<F> {
    /// In their order, with their names.
    pub(crate) files: Vec<(Vec<u8>, F)>,
    /// What the archive would be called if it were one file.
    pub(crate) whole: Vec<u8>,
    /// What it is shown under where its parts are files among others: the name of one of these.
    pub(crate) shown: Vec<u8>,
    /// What a next part would be called, if nothing says how many there are.
    pub(crate) next: Option<Vec<u8>>,
    /// The same in all ways in which these may be counted: with a file of such a name they would be others.
    pub(crate) after: Vec<Vec<u8>>,
}

/// Why there are no parts.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// That one of them is not there.
    Missing(Vec<u8>),
    /// They could not be looked for.
    Problem(Problem),
}

impl From<Problem> for Wrong {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

type Result<T, E = Wrong> = std::result::Result<T, E>;

/// True if a file of that name may be one of several parts of an archive that is looked for among many others. Most
/// names could be numbers that are counted in letters; so many parts nobody makes.
pub(crate) fn may_be_part(name: &[u8]) -> bool {
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else { return false };
    let Some(suffix) = name.get(dot + 1..) else { return false };
    if split_suffix(name).is_some() && COUNTS.iter().any(|count| count.may_have(suffix)) {
        let has_digits = suffix.iter().any(u8::is_ascii_digit);
        let is_low = suffix.len() == 2 || suffix.starts_with(b"a") || suffix.starts_with(b"z") && suffix.len() > 3;
        if has_digits || is_low {
            return true;
        }
    }
    is_called_volume(name) || is_called_whole(name)
}

/// What is before the number of a name that may have one.
pub(crate) fn stem_of_number(name: &[u8]) -> Option<&[u8]> {
    let (stem, suffix) = split_suffix(name)?;
    COUNTS.iter().any(|count| count.may_have(suffix)).then_some(stem)
}

/// Formats whose volumes are found by the last one.
fn by_last() -> impl Iterator<Item = &'static dyn VolumesByLast> {
    FORMATS.iter().filter_map(|format| format.volumes_by_last())
}

/// Those whose volumes are found by the first one.
fn by_first() -> impl Iterator<Item = &'static dyn VolumesByFirst> {
    FORMATS.iter().filter_map(|format| format.volumes_by_first())
}

/// True if some format may call a volume so that is not the first one, or the last one where that is the one with the
/// directory.
pub(crate) fn is_called_volume(name: &[u8]) -> bool {
    let is_before = |format: &dyn VolumesByLast| format.last_volume(name).is_some_and(|last| last != name);
    let is_behind = |format: &dyn VolumesByFirst| {
        let firsts = format.first_volumes(name);
        !firsts.is_empty() && !firsts.iter().any(|first| first == name)
    };
    by_last().any(is_before) || by_first().any(is_behind)
}

/// True if some format may call that volume so which the others are found by, and an archive in one file as well.
pub(crate) fn is_called_whole(name: &[u8]) -> bool {
    by_last().any(|format| is_last(format, name)) || by_first().any(|format| is_first_of(format, name))
}

/// True if `name` may be that of the last volume of an archive of that format.
pub(crate) fn is_last(format: &dyn VolumesByLast, name: &[u8]) -> bool {
    format.last_volume(name).is_some_and(|last| last == name)
}

/// The same of the first one.
pub(crate) fn is_first_of(format: &dyn VolumesByFirst, name: &[u8]) -> bool {
    format.first_volumes(name).iter().any(|first| first == name)
}

/// True if the last volume says whether there are others: what stands at its start says nothing of that.
pub(crate) fn is_led_by_last(name: &[u8]) -> bool {
    by_last().any(|format| format.last_volume(name).is_some())
}

/// True if `file` says that it is one of several volumes, which are called as `name` is.
pub(crate) fn is_split<F: File>(name: &[u8], file: &F) -> bool {
    let leads = |format: &dyn VolumesByLast| {
        is_last(format, name) && format.volumes(file.source()).is_ok_and(|others| others.is_some())
    };
    let is_one = |format: &dyn VolumesByFirst| {
        !format.first_volumes(name).is_empty() && file.volume(format).is_ok_and(|volume| volume.is_some())
    };
    by_last().any(leads) || by_first().any(is_one)
}

/// True of a volume of which what it has whole can be read without the others.
pub(crate) fn stands_alone<F: File>(name: &[u8], file: &F) -> bool {
    by_first().any(|format| {
        let is_called_so = !format.first_volumes(name).is_empty();
        is_called_so && file.volume(format).is_ok_and(|volume| volume.is_some_and(|volume| !volume.is_part))
    })
}

/// True if the name has a number that the first part may have.
pub(crate) fn is_first(name: &[u8]) -> bool {
    split_suffix(name).is_some_and(|(_, suffix)| firsts(suffix).any(|first| first == suffix))
}

/// The numbers that the first part may have, if that of another one is `suffix`.
pub(crate) fn firsts(suffix: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    COUNTS.iter().filter(|count| count.may_have(suffix)).flat_map(|count| count.firsts(suffix))
}

/// What a part behind the one called `name` may be called, if these are numbered.
pub(crate) fn next_ones(name: &[u8]) -> Vec<Vec<u8>> {
    let Some((stem, suffix)) = split_suffix(name) else { return Vec::new() };
    let next = |count: &Count| count.next(suffix).map(|next| [stem, b".", &next].concat());
    COUNTS.iter().filter(|count| count.may_have(suffix)).filter_map(next).collect()
}

/// The parts of the archive of which the file called `name` is one; `None` if it is no part.
pub(crate) fn find<F: File>(name: &[u8], open: &Open<'_, F>) -> Result<Option<Found<F>>> {
    for format in FORMATS {
        if let Some(format) = format.volumes_by_last()
            && let Some(parts) = named_by(format, name, open)?
        {
            return Ok(Some(parts));
        }
        if let Some(format) = format.volumes_by_first()
            && let Some(parts) = counted_by(format, name, open)?
        {
            return Ok(Some(parts));
        }
    }
    let Some((stem, suffix)) = split_suffix(name) else { return Ok(None) };
    // What begins as decimal numbers may go on as hexadecimal ones.
    let (mut most, mut missing, mut after): (Option<Found<F>>, _, _) = (None, None, Vec::new());
    for count in COUNTS.iter().filter(|count| count.may_have(suffix)) {
        let mut found = match numbered(stem, suffix, count, open) {
            Ok(found) => found,
            // Counted in another way nothing may be missing.
            Err(Wrong::Missing(name)) => {
                after.push(name.clone());
                missing.get_or_insert(name);
                continue;
            }
            Err(problem) => return Err(problem),
        };
        after.extend(found.iter_mut().flat_map(|found| std::mem::take(&mut found.after)));
        if found.as_ref().map(|parts| parts.files.len()) > most.as_ref().map(|parts| parts.files.len()) {
            most = found;
        }
    }
    match (most, missing) {
        (None, Some(missing)) => Err(Wrong::Missing(missing)),
        (most, _) => Ok(most.map(|found| Found { after, ..found })),
    }
}

/// The format whose volumes they are, if each of these has headers of its own, so that they cannot simply be joined.
pub(crate) fn are_volumes<F: File>(files: &[(Vec<u8>, F)]) -> io::Result<Option<&'static str>> {
    /// Bytes that such headers have together, at the most.
    const HEAD: usize = 16 << 10;
    let mut head = vec![0; HEAD];
    for (_, part) in files.iter().skip(1) {
        let read = part.source().read_at(&mut head, 0)?;
        let head = head.get(..read).unwrap_or_default();
        if let Some(format) = FORMATS.iter().find(|format| format.is_later_volume(head)) {
            return Ok(Some(format.name()));
        }
    }
    Ok(None)
}

/// The decimal number that a name ends with.
fn number_behind(name: &[u8]) -> Option<u64> {
    let start = name.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |before| before + 1);
    std::str::from_utf8(name.get(start..)?).ok()?.parse().ok()
}

/// The parts, if `format` calls its volumes so.
fn named_by<F: File>(format: &dyn VolumesByLast, name: &[u8], open: &Open<'_, F>) -> Result<Option<Found<F>>> {
    let Some(last) = format.last_volume(name) else { return Ok(None) };
    let is_last = name == last;
    let Some(file) = open(&last)? else {
        return if is_last { Ok(None) } else { Err(Wrong::Missing(last)) };
    };
    let source = file.source();
    let volumes = format.volumes(source).map_err(|error| Problem::Read { offset: source.len(), error })?;
    let Some(count) = volumes else { return Ok(None) };
    // It may be of another archive, or of none.
    let is_one = |number: u64| {
        (1..=count).contains(&number) && format.volume_before(&last, number).is_some_and(|volume| volume == name)
    };
    if !is_last && !number_behind(name).is_some_and(is_one) {
        return Ok(None);
    }
    // It may say that there are tens of thousands: the first one that is not there ends it.
    let mut files = Vec::new();
    for number in 1..=count {
        let Some(name) = format.volume_before(&last, number) else { return Ok(None) };
        let Some(part) = open(&name)? else { return Err(Wrong::Missing(name)) };
        files.push((name, part));
    }
    files.push((last.clone(), file));
    Ok(Some(Found { files, whole: last.clone(), shown: last, next: None, after: Vec::new() }))
}

/// The parts, if `format` knows what its first volume is called, and each says whether another one follows.
fn counted_by<F: File>(format: &dyn VolumesByFirst, own: &[u8], open: &Open<'_, F>) -> Result<Option<Found<F>>> {
    let firsts = format.first_volumes(own);
    let volume = |file: &F| file.volume(format).map_err(|error| Problem::Read { offset: 0, error });
    let mut found = None;
    for name in &firsts {
        if let Some(file) = open(name)? {
            found = Some((name.clone(), file));
            break;
        }
    }
    let Some((first, file)) = found else {
        // What has another name than the others is no volume of them.
        let (Some(missing), Some(file)) = (firsts.into_iter().next(), open(own)?) else { return Ok(None) };
        return volume(&file)?.map_or(Ok(None), |_| Err(Wrong::Missing(missing)));
    };
    let Some(mut last) = volume(&file)? else { return Ok(None) };
    let (mut name, mut is_among, mut files) = (first.clone(), first == own, vec![(first.clone(), file)]);
    // One that names a volume before it would go round in a circle.
    let mut known = HashSet::from([first.clone()]);
    let next = loop {
        let next = last.next.clone().or_else(|| format.next_volume(&name));
        let Some(next) = next.filter(|_| last.is_followed != Some(false)) else { break None };
        let Some(file) = open(&next)?.filter(|_| !known.contains(&next)) else { break Some(next) };
        // What has its name may be of another archive.
        let Some(volume) = volume(&file)?.filter(|volume| volume.may_follow(&last)) else { break Some(next) };
        is_among |= next == own;
        files.push((next.clone(), file));
        known.insert(next.clone());
        (last, name) = (volume, next);
    };
    // What others need not be there for is read without them.
    if let (Some(missing), Some(true)) = (&next, last.is_followed.filter(|_| last.is_part)) {
        return Err(Wrong::Missing(missing.clone()));
    }
    // Where nothing says whether another one follows, those behind a gap do.
    let (mut behind, mut is_gap) = (next.clone(), false);
    for _ in 0..LOOKED_FOR {
        behind = behind.as_deref().and_then(|name| format.next_volume(name));
        let Some(name) = &behind else { break };
        is_gap |= open(name)?.is_some();
    }
    match next {
        Some(missing) if is_gap => Err(Wrong::Missing(missing)),
        // A single file that is not split.
        next if files.len() > 1 && is_among => {
            let after = next.iter().cloned().collect();
            Ok(Some(Found { files, whole: first.clone(), shown: first, next, after }))
        }
        _ => Ok(None),
    }
}

/// The parts that are counted as `count` does it, if the one with that `suffix` is among them.
fn numbered<F: File>(stem: &[u8], suffix: &[u8], count: &Count, open: &Open<'_, F>) -> Result<Option<Found<F>>> {
    let part = |suffix: &[u8]| [stem, b".", suffix].concat();
    for mut next in count.firsts(suffix) {
        // Mostly it is nothing that has to do with the archive.
        let Ok(Some(first)) = open(&part(&next)) else { continue };
        let mut files = vec![(part(&next), first)];
        let mut is_among = next == suffix;
        let mut after: Vec<Vec<u8>>;
        loop {
            let (normal, wider) = (count.next(&next), count.wider(&next));
            after = normal.iter().chain(&wider).map(|suffix| part(suffix)).collect();
            let found = [normal.clone(), wider].into_iter().flatten().find_map(|suffix| {
                let opened = open(&part(&suffix)).transpose()?;
                Some(opened.map(|file| (suffix, file)))
            });
            let Some((found, file)) = found.transpose()? else {
                match normal {
                    Some(normal) => next = normal,
                    None => next.clear(),
                }
                break;
            };
            is_among |= found == suffix;
            files.push((part(&found), file));
            next = found;
        }
        // What looks numbered may be copies of different days. Who splits makes parts of one length. Three digits are
        // used for nothing else.
        let is_certain = count.digits == DECIMAL && suffix.len() >= 3;
        let lengths: Vec<u64> = files.iter().map(|(_, file)| file.length()).collect();
        let length = lengths.first().copied().unwrap_or_default();
        let is_even = lengths
            .split_last()
            .is_some_and(|(last, rest)| rest.iter().all(|other| *other == length) && *last <= length);
        let missing = Some(part(&next)).filter(|_| !next.is_empty());
        // The last part is the only one that may be shorter, so behind parts of one length there may be another one.
        // Copies of two days have numbers; nothing but `split` counts with letters.
        let may_go_on = lengths.iter().all(|other| *other == length) && (files.len() > 1 || count.is_of_letters());
        if (is_certain || may_go_on)
            && let Some(missing) = &missing
        {
            let mut behind = next.clone();
            for _ in 0..LOOKED_FOR {
                let Some(later) = count.next(&behind) else { break };
                let is_among = is_among || suffix == later;
                if let Some(file) = open(&part(&later))?
                    && (is_certain || is_among && file.length() <= length)
                {
                    return Err(Wrong::Missing(missing.clone()));
                }
                behind = later;
            }
        }
        if !is_certain && (files.len() == 1 || !is_even) {
            continue;
        }
        if is_among {
            let shown = files.first().map_or_else(Vec::new, |(name, _)| name.clone());
            return Ok(Some(Found { files, whole: stem.to_vec(), shown, next: missing, after }));
        }
    }
    Ok(None)
}

/// What is before and behind the last dot of a name.
pub(crate) fn split_suffix(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let (stem, suffix) = (name.get(..dot)?, name.get(dot + 1..)?);
    (!stem.is_empty() && (2..=10).contains(&suffix.len())).then_some((stem, suffix))
}

/// A way to count parts.
#[derive(Debug)]
struct Count {
    /// In their order.
    digits: &'static [u8],
    /// The numbers that the first part may have.
    firsts: &'static [u8],
}

const DECIMAL: &[u8] = b"0123456789";

/// 7-Zip's and those of GNU `split`.
const COUNTS: [Count; 3] = [
    Count { digits: DECIMAL, firsts: b"01" },
    Count { digits: b"0123456789abcdef", firsts: b"01" },
    Count { digits: b"abcdefghijklmnopqrstuvwxyz", firsts: b"a" },
];

impl Count {
    fn may_have(&self, suffix: &[u8]) -> bool {
        suffix.iter().all(|byte| self.digits.contains(byte))
    }

    fn is_of_letters(&self) -> bool {
        self.digits.first() == Some(&b'a')
    }

    /// The suffixes that the first part may have, if that of another one is `suffix`.
    fn firsts(&self, suffix: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        let zero = self.digits.first().copied();
        let first = move |length: usize, last: u8| {
            let mut first = vec![zero.unwrap_or(last); length];
            first.iter_mut().last().into_iter().for_each(|byte| *byte = last);
            first
        };
        let lengths = (2..=suffix.len()).rev();
        lengths.flat_map(move |length| self.firsts.iter().map(move |last| first(length, *last)))
    }

    /// One more. Decimal numbers become longer behind the last one, as in 7-Zip; others end there.
    fn next(&self, suffix: &[u8]) -> Option<Vec<u8>> {
        let mut next = suffix.to_vec();
        for byte in next.iter_mut().rev() {
            let at = self.digits.iter().position(|digit| digit == byte)?;
            if let Some(higher) = self.digits.get(at + 1) {
                *byte = *higher;
                return Some(next);
            }
            *byte = *self.digits.first()?;
        }
        (self.digits == DECIMAL).then(|| [b"1", &next[..]].concat())
    }

    /// What follows in `split`, which widens suffixes in time: `yz` by `zaaa`, `zyzz` by `zzaaaa`.
    fn wider(&self, suffix: &[u8]) -> Option<Vec<u8>> {
        let (&last, &zero) = (self.digits.last()?, self.digits.first()?);
        let before_last = *self.digits.get(self.digits.len().checked_sub(2)?)?;
        let level = suffix.iter().take_while(|byte| **byte == last).count();
        let expected = [vec![last; level], vec![before_last], vec![last; level + 1]].concat();
        (suffix == expected).then(|| [vec![last; level + 1], vec![zero; level + 3]].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_as_by_who_splits() {
        let [decimal, hex, letters] = &COUNTS;
        let next =
            |count: &Count, suffix: &str| count.next(suffix.as_bytes()).map(|next| String::from_utf8(next).unwrap());
        assert_eq!(next(decimal, "009").as_deref(), Some("010"));
        assert_eq!(next(decimal, "999").as_deref(), Some("1000"));
        assert_eq!(next(hex, "0f").as_deref(), Some("10"));
        assert_eq!(next(letters, "az").as_deref(), Some("ba"));
        assert_eq!(next(letters, "zz"), None);
        let wider =
            |count: &Count, suffix: &str| count.wider(suffix.as_bytes()).map(|next| String::from_utf8(next).unwrap());
        assert_eq!(wider(letters, "yz").as_deref(), Some("zaaa"));
        assert_eq!(wider(letters, "zyzz").as_deref(), Some("zzaaaa"));
        assert_eq!(wider(decimal, "89").as_deref(), Some("9000"));
        assert_eq!(wider(decimal, "9899").as_deref(), Some("990000"));
        assert_eq!((wider(decimal, "88"), wider(decimal, "899"), wider(letters, "z")), (None, None, None));
        let firsts: Vec<_> = decimal.firsts(b"0012").collect();
        assert_eq!(firsts, [&b"0000"[..], b"0001", b"000", b"001", b"00", b"01"]);
    }

    /// Whoever has found them looks whether one more has come.
    #[test]
    fn all_names_that_go_on_are_told() {
        let file: SharedSource = Arc::new(tarnfs_source::MemorySource::new(b"part", "x"));
        let after = |last: usize, digits: usize| {
            let names: Vec<_> = (0..=last).map(|number| format!("x.{number:0digits$}").into_bytes()).collect();
            let open = |name: &[u8]| Ok(names.iter().any(|known| known == name).then(|| SharedSource::clone(&file)));
            let found = find(&names[0], &open).unwrap().unwrap();
            assert_eq!(found.files.len(), last + 1);
            let mut after: Vec<_> = found.after.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
            after.sort();
            after
        };
        assert_eq!(after(89, 2), ["x.0a", "x.90", "x.9000"]);
        assert_eq!(after(12, 3), ["x.00a", "x.013"]);
        assert_eq!(after(9, 2), ["x.0a", "x.10"]);
    }

    /// A zip that says that it has very many volumes, of which the first is not there.
    #[test]
    fn the_first_volume_that_is_missing_ends_the_search() {
        let end = [&b"PK\x05\x06"[..], &65_534_u16.to_le_bytes(), &[0, 0, 1, 0, 1, 0, 46, 0, 0, 0], &[0; 6]].concat();
        let last: SharedSource = Arc::new(tarnfs_source::MemorySource::new([&[0; 200][..], &end].concat(), "x.zip"));
        let looks = std::cell::Cell::new(0);
        let open = |name: &[u8]| {
            looks.set(looks.get() + 1);
            Ok(if name == b"x.z01" { None } else { Some(SharedSource::clone(&last)) })
        };
        for (name, is_among) in
            [("x.z02", true), ("x.z65534", true), ("x.zip", true), ("x.z002", false), ("x.z65535", false)]
        {
            looks.set(0);
            let found = find(name.as_bytes(), &open);
            let is_missing = matches!(&found, Err(Wrong::Missing(missing)) if missing == b"x.z01");
            assert_eq!(is_missing, is_among, "{name} {found:?}");
            assert!(looks.get() < 100, "{name}: {}", looks.get());
        }
    }

    #[test]
    fn names_of_parts_are_told_from_others() {
        for name in ["x.7z.001", "x.aa", "x.zaaa", "x.00", "x.z01", "x.part2.rar", "x.r00", "x.0f", "x.zip", "x.rar"] {
            assert!(may_be_part(name.as_bytes()), "{name}");
        }
        for name in ["x", "x.tar", "x.7z", "libx.a", "libx.so.1", "x.txt", "x.html", ".001", "x.AA"] {
            assert!(!may_be_part(name.as_bytes()), "{name}");
        }
        for (name, is_later, is_whole) in [
            ("x.z01", true, false),
            ("x.zip", false, true),
            ("x.part2.rar", true, false),
            ("x.part1.rar", false, true),
            ("x.rar", false, true),
            ("x.001", false, false),
        ] {
            assert_eq!(is_called_volume(name.as_bytes()), is_later, "{name}");
            assert_eq!(is_called_whole(name.as_bytes()), is_whole, "{name}");
        }
    }
}
