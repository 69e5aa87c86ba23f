//! A folder: what 7z calls a block of compressed bytes and the graph of coders that makes files of it.

use super::bytes::{Broken, Bytes};

/// Coders of one folder, and streams into or out of them: as many as 7-Zip itself takes.
const MOST: usize = 32;

/// One coder of a folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method<'h> {
    pub(super) id: &'h [u8],
    pub(super) properties: &'h [u8],
    /// Streams that go into it.
    inputs: usize,
    /// Streams that come out of it.
    pub(super) outputs: usize,
}

/// One folder as the header defines it.
#[derive(Debug, Clone, Default)]
pub(super) struct Folder<'h> {
    pub(super) methods: Vec<Method<'h>>,
    /// Input and the output that goes into it, counted over all coders.
    bonds: Vec<(usize, usize)>,
    /// Inputs that come from the archive.
    packed: Vec<usize>,
    /// The definition itself: folders that are coded alike have the same.
    pub(super) definition: &'h [u8],
}

impl<'h> Folder<'h> {
    pub(super) fn read(&mut self, bytes: &mut Bytes<'h>) -> Result<(), Broken> {
        let start = *bytes;
        self.methods.clear();
        self.bonds.clear();
        self.packed.clear();
        let few = |bytes: &mut Bytes<'h>, what| {
            let at = *bytes;
            let number = bytes.number()?;
            usize::try_from(number).ok().filter(|&number| number <= MOST).ok_or(at.broken(what))
        };
        let count = few(bytes, "a folder has too many coders")?;
        for _ in 0..count {
            let at = *bytes;
            let flags = bytes.byte()?;
            if flags & 0xc0 != 0 {
                return Err(at.broken("a coder of a kind that is not known"));
            }
            let id = bytes.take(usize::from(flags & 0xf))?;
            let (mut inputs, mut outputs) = (1, 1);
            if flags & 0x10 != 0 {
                inputs = few(bytes, "a coder takes too many streams")?;
                outputs = few(bytes, "a coder gives too many streams")?;
            }
            let mut properties = &[][..];
            if flags & 0x20 != 0 {
                let length = bytes.count()?;
                properties = bytes.take(length)?;
            }
            self.methods.push(Method { id, properties, inputs, outputs });
        }
        let sum = |number: fn(&Method<'_>) -> usize| self.methods.iter().map(number).fold(0, usize::saturating_add);
        let (inputs, outputs) = (sum(|method| method.inputs), sum(|method| method.outputs));
        let bonds = outputs.checked_sub(1).ok_or(start.broken("a folder gives nothing"))?;
        let packed = inputs.checked_sub(bonds).filter(|&packed| packed > 0);
        let packed = packed.ok_or(start.broken("the coders of a folder go in a circle"))?;
        if inputs > MOST || outputs > MOST {
            return Err(start.broken("the coders of a folder have too many streams"));
        }
        for _ in 0..bonds {
            let at = *bytes;
            let bond = (few(bytes, "no such stream")?, few(bytes, "no such stream")?);
            let is_taken = self.bonds.iter().any(|other| other.0 == bond.0 || other.1 == bond.1);
            if bond.0 >= inputs || bond.1 >= outputs || is_taken {
                return Err(at.broken("the coders of a folder are joined in an impossible way"));
            }
            self.bonds.push(bond);
        }
        if packed == 1 {
            // The only one that is left.
            self.packed.extend((0..inputs).find(|input| self.bonds.iter().all(|bond| bond.0 != *input)));
        } else {
            for _ in 0..packed {
                let at = *bytes;
                let input = few(bytes, "no such stream")?;
                if input >= inputs || self.packed.contains(&input) || self.bonds.iter().any(|bond| bond.0 == input) {
                    return Err(at.broken("the streams of a folder are joined in an impossible way"));
                }
                self.packed.push(input);
            }
        }
        self.definition = bytes.since(&start);
        Ok(())
    }

    /// Streams of the archive that go into it.
    pub(super) fn packed(&self) -> usize {
        self.packed.len()
    }

    /// Streams that come out of its coders, into others but for one.
    pub(super) fn outputs(&self) -> usize {
        self.methods.iter().map(|method| method.outputs).fold(0, usize::saturating_add)
    }

    /// The output that goes into no other coder: the files.
    pub(super) fn main_output(&self) -> Option<usize> {
        (0..self.outputs()).find(|output| self.bonds.iter().all(|bond| bond.1 != *output))
    }

    /// Its coders in the order in which they are undone, and what goes into each; `None` if they are joined in a way
    /// that has no such order, or one of them gives several streams.
    pub(super) fn order(&self) -> Option<Vec<Ordered>> {
        let is_simple = self.methods.iter().all(|method| method.outputs == 1);
        let mut order = Vec::with_capacity(self.methods.len());
        // Where each coder gives one stream, that has the coder's number.
        self.visit(self.main_output().filter(|_| is_simple)?, &mut order)?;
        (order.len() == self.methods.len()).then_some(order)
    }

    /// Adds the coder and all that it needs to `order`, and returns its place there.
    fn visit(&self, coder: usize, order: &mut Vec<Ordered>) -> Option<usize> {
        let inputs_before = self.methods.get(..coder)?.iter().map(|method| method.inputs);
        let first = inputs_before.fold(0, usize::saturating_add);
        let mut inputs = Vec::new();
        // No output goes into two coders, so this does not go in a circle, nor deeper than there are coders.
        for input in first..first.saturating_add(self.methods.get(coder)?.inputs) {
            inputs.push(match self.bonds.iter().find(|bond| bond.0 == input) {
                Some(&(_, output)) => From::Coder(self.visit(output, order)?),
                None => From::Archive(self.packed.iter().position(|packed| *packed == input)?),
            });
        }
        order.push(Ordered { coder, inputs });
        order.len().checked_sub(1)
    }
}

/// A coder of a folder in the order in which they are undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ordered {
    /// Its number.
    pub(super) coder: usize,
    pub(super) inputs: Vec<From>,
}

/// Where a stream comes from that goes into a coder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// The archive: which of the folder's streams.
    Archive(usize),
    /// What is in this place of the order.
    Coder(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Folder<'_>, Broken> {
        let mut folder = Folder::default();
        let mut cursor = Bytes::new(bytes);
        folder.read(&mut cursor)?;
        assert_eq!(cursor.left(), 0);
        assert_eq!(folder.definition, bytes);
        Ok(folder)
    }

    /// Numbers of the coders in their order.
    fn chain(bytes: &[u8]) -> Vec<usize> {
        let order = read(bytes).unwrap().order().unwrap();
        order.iter().map(|ordered| ordered.coder).collect()
    }

    #[test]
    fn chains_are_undone_from_the_archive_on() {
        let folder = read(&[1, 0x21, 0x21, 1, 0x18]).unwrap();
        assert_eq!(folder.order(), Some(vec![Ordered { coder: 0, inputs: vec![From::Archive(0)] }]));
        assert_eq!((folder.packed(), folder.main_output()), (1, Some(0)));
        assert_eq!((folder.methods[0].id, folder.methods[0].properties), (&[0x21][..], &[0x18][..]));
        // BCJ, whose input is what LZMA gives.
        assert_eq!(chain(&[2, 0x01, 4, 0x01, 0x21, 0, 1]), [1, 0]);
        assert_eq!(chain(&[3, 0x01, 4, 0x01, 0x21, 0x01, 3, 1, 2, 0, 1]), [2, 1, 0]);
        assert_eq!(chain(&[3, 0x01, 4, 0x01, 0x21, 0x01, 3, 1, 0, 2, 1]), [0, 1, 2]);
    }

    #[test]
    fn what_goes_into_bcj2_is_told_in_its_order() {
        let bytes =
            [4, 0x14, 3, 3, 1, 0x1b, 4, 1, 0x03, 3, 1, 1, 0x03, 3, 1, 1, 0x03, 3, 1, 1, 0, 1, 1, 2, 2, 3, 4, 5, 6, 3];
        let folder = read(&bytes).unwrap();
        let simple = |coder, stream| Ordered { coder, inputs: vec![From::Archive(stream)] };
        let inputs = vec![From::Coder(0), From::Coder(1), From::Coder(2), From::Archive(3)];
        assert_eq!(folder.order(), Some(vec![simple(1, 0), simple(2, 1), simple(3, 2), Ordered { coder: 0, inputs }]));
        assert_eq!((folder.packed(), folder.outputs(), folder.main_output()), (4, 4, Some(0)));
    }

    #[test]
    fn impossible_graphs_are_refused() {
        for bytes in [
            // Nothing at all, too many coders, a flag that is not known.
            &[0][..],
            &[33],
            &[1, 0x41, 0],
            &[1, 0x81, 0],
            // A stream that is not there, the same twice, and one that is already joined.
            &[2, 0x01, 4, 0x01, 0x21, 0, 2],
            &[3, 0x01, 4, 0x01, 0x21, 0x01, 3, 0, 1, 0, 2],
            &[1, 0x11, 0, 2, 1, 0, 0],
            // No input, no output, far too many of each.
            &[1, 0x11, 0, 0, 1],
            &[1, 0x11, 0, 1, 0],
            &[1, 0x11, 0, 33, 1],
            &[2, 0x11, 0, 32, 1, 0x11, 0, 32, 1, 0, 1],
        ] {
            let mut folder = Folder::default();
            assert!(folder.read(&mut Bytes::new(bytes)).is_err(), "{bytes:x?}");
        }
        // Two coders that feed each other, and a third by itself.
        let folder = read(&[3, 0x01, 4, 0x01, 0x21, 0x01, 3, 0, 1, 1, 0]).unwrap();
        assert_eq!(folder.order(), None);
    }
}
