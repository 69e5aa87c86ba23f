//! Makes a [`Coder`] of a folder's methods, one for all folders that are coded alike.

use std::collections::HashSet;
use std::sync::Arc;

use super::folder::Branched;
use super::methods;
use super::streams::Block;
use crate::{Coder, Step};

/// Coders that are remembered. Those of encrypted archives differ in each folder, and there may be as many folders as
/// files.
const MOST_KNOWN: usize = 4096;

/// Bytes of the properties of a folder's coders. 7-Zip writes a few dozen.
const MOST_PROPERTIES: usize = 1024;

/// Problems that are told of one archive.
const MOST_TOLD: usize = 16;

/// The coders that were met.
#[derive(Debug, Default)]
pub(super) struct Coders<'h> {
    known: HashSet<Arc<Coder>>,
    /// That of the last folder, by its definition.
    last: Option<(&'h [u8], Option<Arc<Coder>>)>,
    /// Problems that were told, each once.
    told: Vec<String>,
}

impl<'h> Coders<'h> {
    /// What undoes `block`, `None` if it is stored as it is. `tell` is called with what cannot be undone.
    pub(super) fn of(&mut self, block: &Block<'h>, tell: &mut dyn FnMut(String)) -> Option<Arc<Coder>> {
        let is_one_length = block.sizes.iter().all(|size| *size == block.decoded);
        let last = self.last.as_ref().filter(|last| is_one_length && last.0 == block.folder.definition);
        if let Some((_, coder)) = last {
            return coder.clone();
        }
        let (steps, problem) = match steps(block) {
            Ok(steps) => (steps, None),
            Err((codec, problem)) => (vec![Step { codec, properties: Vec::new() }], Some(problem)),
        };
        if let Some(problem) = problem.filter(|problem| !self.told.contains(problem) && self.told.len() < MOST_TOLD) {
            tell(problem.clone());
            self.told.push(problem);
        }
        let coder = (!steps.is_empty()).then(|| self.shared(Coder { steps, is_behind_header: None }));
        if is_one_length {
            self.last = Some((block.folder.definition, coder.clone()));
        }
        coder
    }

    fn shared(&mut self, coder: Coder) -> Arc<Coder> {
        if let Some(known) = self.known.get(&coder) {
            return Arc::clone(known);
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let coder = Arc::new(coder);
        self.known.insert(Arc::clone(&coder));
        coder
    }
}

/// The steps that undo `block`; or, where that cannot be done, the name of a codec that there is not, and why.
///
/// A step does not say how many bytes come out of it. What follows from the length of the file suffices: filters give
/// as many as they take. Only AES before something else gives more than that takes, up to a whole block of its own.
fn steps(block: &Block<'_>) -> Result<Vec<Step>, (String, String)> {
    let unreadable = |codec: &str, what: &str| (codec.to_owned(), format!("files {what}: they cannot be read"));
    let chain = block.folder.chain().map_err(|Branched { is_bcj2 }| {
        let (codec, what) = if is_bcj2 { ("bcj2", "BCJ2") } else { ("7z graph", "coders of several streams") };
        unreadable(codec, &format!("that are stored with {what}, which is not supported"))
    })?;
    let properties = block.folder.methods.iter().map(|method| method.properties.len()).fold(0, usize::saturating_add);
    if properties > MOST_PROPERTIES {
        return Err(unreadable("7z properties", &format!("whose coders have {properties} bytes of properties")));
    }
    let mut steps = Vec::with_capacity(chain.len());
    for index in chain {
        let Some(method) = block.folder.methods.get(index).filter(|method| method.id != methods::COPY) else {
            continue;
        };
        let Some(codec) = methods::codec(method.id) else {
            let name = methods::unknown(method.id);
            return Err(unreadable(&name, &format!("that are stored with {name}, which is not known")));
        };
        if method.id != methods::AES && block.sizes.get(index) != Some(&block.decoded) {
            return Err(unreadable("7z lengths", "that are compressed twice, which is not supported"));
        }
        steps.push(Step { codec: codec.to_owned(), properties: method.properties.to_vec() });
    }
    Ok(steps)
}
