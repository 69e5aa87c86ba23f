//! Makes a [`Coder`] of a folder's methods, one for all folders that are coded alike.

use std::collections::HashSet;
use std::sync::Arc;

use super::folder::Branched;
use super::streams::Block;
use super::{Coder, Step, methods};

/// Coders that are remembered. Those of encrypted archives differ in each folder, and there may be as many folders as
/// files.
const MOST_KNOWN: usize = 4096;

/// Bytes of the properties of a folder's coders. 7-Zip writes a few dozen.
const MOST_PROPERTIES: usize = 1024;

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
        let has_lengths = block.sizes.iter().any(|size| *size != block.decoded);
        if let Some((_, coder)) = self.last.as_ref().filter(|last| !has_lengths && last.0 == block.folder.definition) {
            return coder.clone();
        }
        let (steps, problem) = steps(block);
        if let Some(problem) = problem.filter(|problem| !self.told.contains(problem) && self.told.len() < 16) {
            tell(problem.clone());
            self.told.push(problem);
        }
        let coder = (!steps.is_empty()).then(|| self.shared(Coder { steps }));
        if !has_lengths {
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

/// The steps that undo `block`, and what is wrong with them.
fn steps(block: &Block<'_>) -> (Vec<Step>, Option<String>) {
    let chain = match block.folder.chain() {
        Ok(chain) => chain,
        Err(Branched { is_bcj2 }) => {
            let (codec, what) = if is_bcj2 { ("bcj2", "with BCJ2") } else { ("7z graph", "by coders of many streams") };
            let problem = format!("files that are stored {what}, which is not supported: they cannot be read");
            return (vec![Step { codec: codec.to_owned(), ..Step::default() }], Some(problem));
        }
    };
    let properties = block.folder.methods.iter().map(|method| method.properties.len()).fold(0, usize::saturating_add);
    if properties > MOST_PROPERTIES {
        let problem = format!("files whose coders have {properties} bytes of properties: they cannot be read");
        return (vec![Step { codec: "7z properties".to_owned(), ..Step::default() }], Some(problem));
    }
    let mut steps = Vec::with_capacity(chain.len());
    let mut problem = None;
    for index in chain {
        let Some(method) = block.folder.methods.get(index).filter(|method| method.id != methods::COPY) else {
            continue;
        };
        let codec = methods::codec(method.id).map_or_else(
            || {
                let name = methods::unknown(method.id);
                problem = Some(format!("files that are stored with {name}, which is not known: they cannot be read"));
                name
            },
            str::to_owned,
        );
        let size = block.sizes.get(index).copied();
        let decoded = size.filter(|size| *size != block.decoded);
        steps.push(Step { codec, properties: method.properties.to_vec(), decoded });
    }
    (steps, problem)
}
