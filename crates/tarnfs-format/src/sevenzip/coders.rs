//! Makes a [`Coder`] of a folder's methods, one for all folders that are coded alike.

use std::collections::HashSet;
use std::sync::Arc;

use super::folder::From;
use super::methods;
use super::streams::Block;
use crate::{Coder, Input, Step};

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
        let is_one_length = block.folder.packed() == 1 && block.sizes.iter().all(|size| *size == block.decoded);
        let last = self.last.as_ref().filter(|last| is_one_length && last.0 == block.folder.definition);
        if let Some((_, coder)) = last {
            return coder.clone();
        }
        let (steps, problem) = match steps(block) {
            Ok(steps) => (steps, None),
            Err((codec, problem)) => (vec![Step { codec, ..Step::default() }], Some(problem)),
        };
        if let Some(problem) = problem.filter(|problem| !self.told.contains(problem) && self.told.len() < MOST_TOLD) {
            tell(problem.clone());
            self.told.push(problem);
        }
        // Lengths that steps say are those of this block.
        let is_any_length = is_one_length && steps.iter().all(|step| step.decoded_length.is_none());
        let coder = (!steps.is_empty()).then(|| self.shared(Coder { steps, is_behind_header: None }));
        if is_any_length {
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
fn steps(block: &Block<'_>) -> Result<Vec<Step>, (String, String)> {
    let unreadable = |codec: &str, what: &str| (codec.to_owned(), format!("files {what}: they cannot be read"));
    let folder = &block.folder;
    let joined = || unreadable("7z's coders joined in an unknown way", "whose coders are joined in an unknown way");
    let order = folder.order().ok_or_else(joined)?;
    let properties = folder.methods.iter().map(|method| method.properties.len()).fold(0, usize::saturating_add);
    if properties > MOST_PROPERTIES {
        return Err(unreadable("7z properties", &format!("whose coders have {properties} bytes of properties")));
    }
    let mut steps: Vec<Step> = Vec::with_capacity(order.len());
    // What comes of each coder: one that does nothing has no step.
    let mut given = Vec::with_capacity(order.len());
    for ordered in order {
        let inputs: Option<Vec<Input>> = ordered.inputs.iter().map(|from| input(block, &given, *from)).collect();
        let (Some(method), Some(inputs)) = (folder.methods.get(ordered.coder), inputs) else { return Err(joined()) };
        if let (methods::COPY, [input]) = (method.id, inputs.as_slice()) {
            given.push(*input);
            continue;
        }
        let Some(codec) = methods::codec(method.id) else {
            let name = methods::unknown(method.id);
            return Err(unreadable(&name, &format!("that are stored with {name}, which is not known")));
        };
        if inputs.len() != methods::streams(method.id) {
            return Err(joined());
        }
        let decoded_length = block.sizes.get(ordered.coder).copied();
        let is_next = match (inputs.as_slice(), steps.len().checked_sub(1)) {
            ([Input::Stored { length, .. }], None) => *length == block.stored,
            ([Input::Step(number)], Some(last)) => *number == last,
            _ => false,
        };
        given.push(Input::Step(steps.len()));
        let inputs = if is_next { Vec::new() } else { inputs };
        steps.push(Step { codec: codec.to_owned(), properties: method.properties.to_vec(), decoded_length, inputs });
    }
    // What follows from the length of the file is not told: so blocks that are coded alike have one coder.
    for step in steps.iter_mut().rev() {
        if step.decoded_length == Some(block.decoded) {
            step.decoded_length = None;
        }
        if step.decoded_length.is_some() || !methods::keeps_length(&step.codec) {
            break;
        }
    }
    Ok(steps)
}

/// What a coder takes, where those before it have `given` this.
fn input(block: &Block<'_>, given: &[Input], from: From) -> Option<Input> {
    match from {
        From::Coder(place) => given.get(place).copied(),
        From::Archive(stream) => {
            let offset = block.packed_sizes.get(..stream)?.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
            Some(Input::Stored { offset, length: *block.packed_sizes.get(stream)? })
        }
    }
}
