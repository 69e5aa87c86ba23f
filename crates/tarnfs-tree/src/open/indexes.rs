//! Which files are indexes of an archive.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_index::{Error, location, own, ratarmount, trust};
use tarnfs_source::FileSource;

use super::{FileFacts, IndexPlace, OpenArchive, Options};

/// Where an index of the archive at `path` may lie, beside it or in the folders of `place`: one of ours, or a sidecar
/// of ratarmount. One of ours that was made with other options lies beside one of these ([`location::without_tag`]).
pub(crate) fn places(path: &Path, place: &IndexPlace) -> impl Iterator<Item = PathBuf> {
    let mut folders = vec![PathBuf::new()];
    if let IndexPlace::Folders(others) = place {
        folders.extend(others.iter().filter(|folder| !folder.as_os_str().is_empty()).cloned());
    }
    let (own, sidecars) = (location::candidates(path, None, &folders), ratarmount::candidates(path, &folders));
    own.into_iter().chain(sidecars).map(|path| in_real_folder(&path))
}

/// `path`, without links on the way to its folder.
pub(crate) fn in_real_folder(path: &Path) -> PathBuf {
    let folder = path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    match (folder.and_then(|folder| folder.canonicalize().ok()), path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// A file that is an index of an archive, as it was when that was seen.
#[derive(Debug)]
pub struct IndexFile {
    path: PathBuf,
    identity: (u64, u64, (i64, i64)),
}

impl IndexFile {
    fn identity_of(found: &Metadata) -> (u64, u64, (i64, i64)) {
        (found.dev(), found.ino(), (found.ctime(), found.ctime_nsec()))
    }

    /// What lies at `path`, if that is a file.
    fn at(path: PathBuf) -> Option<Self> {
        let found = fs::symlink_metadata(&path).ok().filter(Metadata::is_file)?;
        Some(Self { path, identity: Self::identity_of(&found) })
    }

    /// Removes it, unless another one has come to its place, or it was changed.
    pub fn remove(&self) {
        let now = fs::symlink_metadata(&self.path);
        if now.is_ok_and(|found| Self::identity_of(&found) == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            log::info!("{}: {error}", self.path.display());
        }
    }
}

/// All files that are indexes of the archive at `path`, whatever options they were made with, where `options` look for
/// them and beside it.
pub fn indexes_of(path: &Path, archive: &OpenArchive, options: &Options) -> Vec<IndexFile> {
    let places: Vec<PathBuf> = places(path, &options.index.place).collect();
    let mut files: Vec<PathBuf> = places.iter().flat_map(|place| with_tags(place)).chain(places.clone()).collect();
    files.sort();
    files.dedup();
    let known = archive.index.summary().archive;
    let is_own = |file: &IndexFile| {
        let found = own::open(&file.path, None, options.index.is_trusted).map(|index| index.summary().archive);
        found.is_ok_and(|found| (found.length, found.fingerprint) == (known.length, known.fingerprint))
    };
    let is_sidecar = |file: &IndexFile| is_sidecar(&file.path, path, options).unwrap_or(false);
    files.into_iter().filter_map(IndexFile::at).filter(|file| is_own(file) || is_sidecar(file)).collect()
}

/// The indexes beside the one at `place` that were made with other options.
fn with_tags(place: &Path) -> Vec<PathBuf> {
    let entries = place.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| location::without_tag(path).as_deref() == Some(place)).collect()
}

/// True if the file at `path` is a sidecar of ratarmount that belongs to `archive`.
fn is_sidecar(path: &Path, archive: &Path, options: &Options) -> Result<bool, Error> {
    if !ratarmount::may_be_one(path, options.index.is_trusted) {
        return Ok(false);
    }
    let source = FileSource::open(archive)?;
    let facts = FileFacts::of(&source)?;
    let expected = ratarmount::Expected {
        modified: facts.modified,
        source: Arc::new(source),
        verify_mtime: options.index.verify_mtime,
        shape: options.shape.clone(),
        limits: options.limits,
        dictionaries: options.decoding.dictionaries.clone(),
        cancel: options.cancel.clone(),
    };
    let file = trust::open(path, Some(&facts.owner), options.index.is_trusted)?;
    Ok(ratarmount::open(file, &expected).is_ok_and(|index| index.summary().archive.length == expected.source.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{IndexOptions, open};

    fn tar(content: &str) -> Vec<u8> {
        let mut header = [0_u8; 512];
        header[..4].copy_from_slice(b"file");
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000000001");
        header[148..156].copy_from_slice(b"        ");
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut tar = [&header[..], content.as_bytes()].concat();
        tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
        tar
    }

    #[test]
    fn indexes_are_found_wherever_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (archive, other, elsewhere) = (root.join("a.tar"), root.join("b.tar"), root.join("indexes"));
        fs::write(&archive, tar("content")).unwrap();
        fs::write(&other, tar("another")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let options = |folders: &[&Path], hashes: &[&str]| {
            let place = IndexPlace::Folders(folders.iter().map(|folder| (*folder).to_owned()).collect());
            let index = IndexOptions { is_required: true, minimum_file_count: 0, ..IndexOptions::at(place) };
            let mut options = Options { index, ..Options::default() };
            options.shape.hashes = hashes.iter().map(|&hash| hash.to_owned()).collect();
            options
        };
        let made = |path: &Path, folders: &[&Path], hashes: &[&str]| {
            open(path, &options(folders, hashes)).unwrap().index_path.unwrap()
        };
        let beside = Path::new("");
        let mut expected = vec![
            made(&archive, &[beside], &["md5"]),
            made(&archive, &[beside], &["sha256"]),
            made(&archive, &[&elsewhere], &["md5"]),
        ];
        let foreign = made(&other, &[beside], &[]);
        let opened = open(&archive, &options(&[beside], &["md5"])).unwrap();
        let sidecar = root.join("a.tar.index.sqlite");
        ratarmount::write(&open(&archive, &options(&[beside], &["md5"])).unwrap().index, &archive, &sidecar).unwrap();
        expected.push(sidecar.clone());
        // One of the right name that belongs to another archive.
        let stale = root.join("a.tar.options-0123456789abcdef.tarnfs.sqlite");
        fs::copy(&foreign, &stale).unwrap();
        let found = indexes_of(&archive, &opened, &options(&[beside, &elsewhere], &[]));
        let mut paths: Vec<PathBuf> = found.iter().map(|file| file.path.clone()).collect();
        paths.sort();
        expected.sort();
        assert_eq!(paths, expected);
        // What has come to its place meanwhile stays.
        let kept = expected[0].clone();
        fs::remove_file(&kept).unwrap();
        fs::write(&kept, b"something else").unwrap();
        found.iter().for_each(IndexFile::remove);
        let left: Vec<_> = expected.iter().filter(|path| path.exists()).collect();
        assert_eq!(left, [&kept]);
        assert!(foreign.exists() && stale.exists());
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let config = zlib_rs::DeflateConfig { window_bits: 15 + 16, ..zlib_rs::DeflateConfig::default() };
        let mut packed = vec![0; zlib_rs::compress_bound(bytes.len()) + 64];
        zlib_rs::compress_slice(&mut packed, bytes, config).0.to_vec()
    }

    /// A sidecar of a single file that `--transform` has put into folders.
    #[test]
    fn a_single_file_in_folders_has_a_sidecar() {
        let folder = tempfile::tempdir().unwrap();
        let (archive, sidecar) = (folder.path().join("a.gz"), folder.path().join("a.gz.index.sqlite"));
        fs::write(&archive, gzip(b"text")).unwrap();
        let mut options = Options { index: IndexOptions::at(IndexPlace::Memory), ..Options::default() };
        options.shape.transform = Some(("^".to_owned(), "d/e/".to_owned()));
        let opened = open(&archive, &options).unwrap();
        ratarmount::write(&opened.index, &archive, &sidecar).unwrap();
        let connection = rusqlite::Connection::open(&sidecar).unwrap();
        let mut statement =
            connection.prepare("SELECT path, name, mode & 0xf000 FROM files ORDER BY path, name").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        let rows: Vec<(String, String, u32)> = rows.map(Result::unwrap).collect();
        let of = |path: &str, name: &str, kind| (path.to_owned(), name.to_owned(), kind);
        let expected = [of("", "d", 0o040_000), of("/d", "e", 0o040_000), of("/d/e", "a", 0o100_000)];
        assert!(expected.iter().all(|row| rows.contains(row)), "{rows:?}");
    }

    /// An index that was made with `-r` has what a sidecar of ratarmount has no place for.
    #[test]
    fn an_index_of_archives_in_archives_may_be_left_aside() {
        let folder = tempfile::tempdir().unwrap();
        let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("a.tar.index.sqlite"));
        fs::write(&archive, tar("content")).unwrap();
        let place = IndexPlace::Folders(vec![PathBuf::new()]);
        let index = IndexOptions { is_required: true, minimum_file_count: 0, ..IndexOptions::at(place) };
        let mut options = Options { index, ..Options::default() };
        let extensions = crate::DEFAULT_EXTENSIONS.map(str::to_owned).into();
        options.shape.recursion = Some(tarnfs_index::Recursion { extensions, ..tarnfs_index::Recursion::default() });
        assert!(open(&archive, &options).unwrap().index_path.is_some());
        options.shape.recursion = None;
        (options.index.is_required, options.index.is_written) = (false, false);
        let opened = open(&archive, &options).unwrap();
        assert!(ratarmount::write(&opened.index, &archive, &sidecar).is_err());
        options.index.without_archives_as_files = true;
        let opened = open(&archive, &options).unwrap();
        ratarmount::write(&opened.index, &archive, &sidecar).unwrap();
    }
}
