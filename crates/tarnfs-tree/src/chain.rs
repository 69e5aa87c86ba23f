//! The steps that undo how a piece is stored, and what goes into each of them.

use std::io;
use std::sync::Arc;

use tarnfs_codec::{Codec, CoderContext};
use tarnfs_format::{Coder, Input, Step};
use tarnfs_source::{Joined, SharedSource, Slice};

/// A step, ready to be undone.
pub(crate) struct Link<'c> {
    pub(crate) codec: &'static dyn Codec,
    context: CoderContext,
    inputs: &'c [Input],
}

impl Link<'_> {
    /// What goes into it, and what its codec has to know, where `done` came of the steps before.
    ///
    /// A codec that takes several streams gets them one behind the other, and the length of each before its own
    /// properties.
    pub(crate) fn input(
        &self,
        stored: &SharedSource,
        done: &[SharedSource],
    ) -> io::Result<(SharedSource, CoderContext)> {
        let input = |input: &Input| match *input {
            Input::Stored { offset, length } => {
                let is_inside = offset.checked_add(length).is_some_and(|end| end <= stored.len());
                is_inside.then(|| Arc::new(Slice::new(SharedSource::clone(stored), offset, length)) as SharedSource)
            }
            Input::Step(number) => done.get(number).cloned(),
        };
        let inputs: Option<Vec<_>> = self.inputs.iter().map(input).collect();
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "its coders are joined in an impossible way");
        let inputs = inputs.ok_or_else(wrong)?;
        let mut context = self.context.clone();
        let source = match inputs.as_slice() {
            [] => SharedSource::clone(done.last().unwrap_or(stored)),
            [input] => SharedSource::clone(input),
            inputs => {
                let lengths = inputs.iter().flat_map(|input| input.len().to_le_bytes());
                context.properties = lengths.chain(context.properties.iter().copied()).collect();
                let name = format!("{} streams of {}", inputs.len(), stored.describe());
                Arc::new(Joined::new(inputs.to_vec(), name)?)
            }
        };
        Ok((source, context))
    }

    /// True if what comes of that step goes into it.
    pub(crate) fn takes(&self, step: usize) -> bool {
        self.inputs.iter().any(|input| matches!(*input, Input::Step(number) if number == step))
    }

    /// Bytes that come of it.
    pub(crate) fn decoded_length(&self) -> u64 {
        self.context.decoded_length.unwrap_or_default()
    }
}

/// The steps of `coder`, which undoes `stored` bytes to `decoded` ones.
pub(crate) fn chain<'c>(
    coder: &'c Coder,
    password: Option<&Arc<[u8]>>,
    stored: u64,
    decoded: u64,
) -> io::Result<Vec<Link<'c>>> {
    let unsupported = |what: String| io::Error::new(io::ErrorKind::Unsupported, what);
    let of_step = |step: &'c Step| {
        let codec = tarnfs_codec::coder_by_name(&step.codec)
            .ok_or_else(|| unsupported(format!("it is stored with {}, which tarnfs cannot read yet", step.codec)))?;
        let (properties, decoded_length) = (step.properties.as_slice().into(), step.decoded_length);
        let password = password.cloned();
        let context = CoderContext { properties, password, decoded_length, ..CoderContext::default() };
        Ok(Link { codec, context, inputs: &step.inputs })
    };
    let mut chain = coder.steps.iter().map(of_step).collect::<io::Result<Vec<_>>>()?;
    let steps: Vec<_> = chain.iter().map(|link| (link.codec, &link.context)).collect();
    // Where steps do not simply follow each other, whoever tells of them tells their lengths.
    let lengths = tarnfs_codec::lengths_of_steps(&steps, stored, decoded);
    for (link, length) in chain.iter_mut().zip(lengths) {
        let what = || unsupported(format!("nothing says how many bytes come of its step {}", link.codec.name()));
        let known = link.context.decoded_length.or(length);
        link.context.decoded_length = Some(known.ok_or_else(what)?);
    }
    Ok(chain)
}
