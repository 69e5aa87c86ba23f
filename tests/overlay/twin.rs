//! A mounted archive that can be written to, and the same files on a tmpfs: what is done to one is done to the other.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{Compare, Mounted, Scratch, Seen, survey, wait_until};

/// Both.
pub(crate) struct Twins {
    pub(crate) scratch: Scratch,
    /// The tmpfs.
    pub(crate) real: PathBuf,
    mounted: Option<Mounted>,
    options: Vec<String>,
    begun: i64,
    archive: Vec<u8>,
}

impl Twins {
    /// `script` makes the files, in an empty folder.
    pub(crate) fn new(script: &str, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let real = scratch.folder("real");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&real).status().unwrap();
        assert!(mounted.success());
        fs::write(scratch.path("make"), script).unwrap();
        scratch.shell(
            "mkdir tree; cd tree; umask 022; bash -eu ../make; find . -exec touch -hd '2020-02-02 02:02:02' {} +",
        );
        scratch.shell("tar -S --xattrs --acls -C tree -cf a.tar .; tar --xattrs --acls -C real -xpf a.tar");
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let archive = fs::read(scratch.path("a.tar")).unwrap();
        let overlay = format!("--write-overlay={}", scratch.path("overlay").display());
        let options = [&[overlay][..], &options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>()].concat();
        let mut twins = Self { scratch, real, mounted: None, options, begun, archive };
        twins.mount();
        twins
    }

    fn mount(&mut self) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.mounted = Some(Mounted::new(&self.scratch, self.scratch.path("a.tar"), &options));
    }

    pub(crate) fn at(&self) -> &Path {
        &self.mounted.as_ref().unwrap().at
    }

    pub(crate) fn remount(&mut self) {
        let mounted = self.mounted.take().unwrap();
        // A child that a test beside this one starts may have a file of it open until its program runs.
        let is_free = || Command::new("umount").arg(&mounted.at).stderr(Stdio::null()).status().unwrap().success();
        wait_until("nobody uses it", is_free);
        drop(mounted);
        self.mount();
    }

    /// Runs a script in both; what it says must be the same.
    #[track_caller]
    pub(crate) fn shell(&self, script: &str) -> String {
        let said =
            [&self.real, self.at()].map(|at| self.scratch.shell(&format!("cd {}; umask 022; {script}", at.display())));
        assert_eq!(said[0], said[1], "{script}");
        said[0].clone()
    }

    /// Fails unless both are the same. Times that were not set but have come of a change are not compared.
    #[track_caller]
    pub(crate) fn same(&self, when: &str) {
        let seen = [&self.real, self.at()].map(|at| {
            let compare = Compare::default();
            let mut all = survey(at, compare);
            for (path, one) in &mut all {
                if one.mtime.0 >= self.begun - 2 {
                    one.mtime = (i64::MAX, 0);
                }
                let stat = fs::symlink_metadata(at.join(path)).unwrap();
                one.links = stat.nlink();
            }
            (all, groups(at))
        });
        for path in seen[0].0.keys().chain(seen[1].0.keys()) {
            assert_eq!(seen[0].0.get(path), seen[1].0.get(path), "{when}: {}", path.display());
        }
        assert_eq!(seen[0].1, seen[1].1, "{when}: hard links");
        assert!(fs::read(self.scratch.path("a.tar")).unwrap() == self.archive, "{when}: the archive has changed");
    }
}

/// Names that are one file.
fn groups(root: &Path) -> Vec<Vec<PathBuf>> {
    let mut groups: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    let all: BTreeMap<PathBuf, Seen> = survey(root, Compare::default());
    for path in all.keys() {
        groups.entry(fs::symlink_metadata(root.join(path)).unwrap().ino()).or_default().push(path.clone());
    }
    let mut groups: Vec<_> = groups.into_values().filter(|group| group.len() > 1).collect();
    groups.sort();
    groups
}

impl Drop for Twins {
    fn drop(&mut self) {
        drop(self.mounted.take());
        let _ = Command::new("umount").arg("-l").arg(&self.real).status();
    }
}
