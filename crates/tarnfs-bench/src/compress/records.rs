//! Files as records, each of which is compressed by itself.

use std::time::Instant;

use super::files::Loaded;
use super::packers::{METHODS, Method, Packer, RECORD};
use super::{Form, Left, Run, Watch, at_once, same};
use crate::measure::Reason;

pub(super) struct Records<'a> {
    files: &'a [Loaded],
    candidates: Vec<(Method, &'static str, i32)>,
}

impl<'a> Records<'a> {
    pub(super) fn new(files: &'a [Loaded], is_wanted: impl Fn(&str) -> bool) -> Self {
        let wanted = METHODS.iter().filter(|(_, name, _)| is_wanted(name));
        let candidates = wanted.flat_map(|(method, name, levels)| levels.clone().map(|level| (*method, *name, level)));
        Self { files, candidates: candidates.collect() }
    }
}

impl Form for Records<'_> {
    fn candidates(&self) -> Vec<(String, i32)> {
        self.candidates.iter().map(|(_, name, level)| ((*name).to_owned(), *level)).collect()
    }

    fn run(&mut self, candidate: usize, writers: usize, watch: &Watch<'_>) -> Result<Run, Reason> {
        let (method, _, level) = self.candidates[candidate];
        let left = Left::new(self.files.len());
        at_once(writers, |writer| {
            let (mut packer, mut out, mut packed) = (Packer::new(method, level), Vec::new(), 0);
            while let Some(number) = left.next(writer) {
                for record in self.files[number].bytes.chunks(RECORD) {
                    watch.check()?;
                    packer.pack(record, &mut out).map_err(Reason::Failed)?;
                    // What does not become shorter is stored as it is.
                    packed += out.len().min(record.len()) as u64;
                }
            }
            Ok(packed)
        })
    }

    fn read(&mut self, candidate: usize, numbers: &[usize], watch: &Watch<'_>) -> Result<Vec<f64>, Reason> {
        let (method, _, level) = self.candidates[candidate];
        let mut packer = Packer::new(method, level);
        let mut times = Vec::new();
        for file in numbers.iter().filter_map(|number| self.files.get(*number)) {
            let mut stored = Vec::new();
            for record in file.bytes.chunks(RECORD) {
                watch.check()?;
                let mut packed = Vec::new();
                packer.pack(record, &mut packed).map_err(Reason::Failed)?;
                stored.push((record, if packed.len() < record.len() { Some(packed) } else { None }));
            }
            let (mut read, mut unpacked) = (Vec::with_capacity(file.bytes.len()), Vec::new());
            let start = Instant::now();
            for (record, packed) in &stored {
                if let Some(packed) = packed {
                    packer.unpack(packed, record.len(), &mut unpacked).map_err(Reason::Failed)?;
                    read.extend_from_slice(&unpacked);
                } else {
                    read.extend_from_slice(record);
                }
            }
            times.push(start.elapsed().as_secs_f64());
            same(file, &read)?;
        }
        Ok(times)
    }
}
