//! What decoders of LZMA data share: producing into the history, delivering from it, looking for seek points meanwhile.

use std::io;

use super::checkpoint::{Checkpoint, Loaded};
use super::history::History;
use super::model::{Model, Properties};
use super::range::RangeDecoder;
use super::survey::{LzmaPoint, Survey};
use super::symbols::{self, Bounds, Invalid, Nobody, Stop};

/// What one step of decoding did.
pub(crate) struct Step {
    /// Bytes of the input that are no longer needed.
    pub(crate) taken: usize,
    pub(crate) written: usize,
    pub(crate) outcome: Outcome,
}

pub(crate) enum Outcome {
    /// There is more, or more input is needed.
    More,
    /// The end of the data, and all of it is written.
    End,
    /// The data are damaged, and what came before is written.
    Damaged(&'static str),
}

/// How symbols are wrapped.
pub(crate) trait Framing {
    /// Bytes of input that each step needs, unless there are no more.
    const WANTED: usize;
    /// A point inside of data may need no state.
    const STARTS_ANEW: bool;

    /// Goes on by a header or by some symbols; returns how much of the input that took. The input is at least
    /// [`Framing::WANTED`] bytes, or all that there are.
    fn produce(&mut self, core: &mut Core, input: &[u8]) -> Result<usize, &'static str>;

    /// Takes what it has put into a checkpoint beside the model. The error says what is wrong with it.
    fn restore(&mut self, loaded: &Loaded, decoded: u64) -> Result<(), &'static str>;
}

/// A decoder of LZMA data.
pub(crate) struct LzmaDecoder<F> {
    core: Core,
    framing: F,
}

/// The part that all framings need.
pub(crate) struct Core {
    pub(super) model: Model,
    pub(super) history: History,
    /// Of the last match, what did not fit.
    pub(super) pending: usize,
    /// How the data end, once that is known.
    pub(super) end: Option<Result<(), &'static str>>,
    /// Bytes of input taken in all.
    taken: u64,
    /// Looks for seek points.
    survey: Option<Survey>,
}

/// The state of a point at which everything starts anew.
const FRESH: &[u8] = &[];

impl<F: Framing> LzmaDecoder<F> {
    /// Bytes of input that each step needs, unless there are no more.
    pub(crate) const WANTED: usize = F::WANTED;

    /// A decoder with a dictionary of that many bytes; `OutOfMemory` where there is none for it.
    pub(super) fn with(framing: F, properties: Properties, dictionary: usize) -> io::Result<Self> {
        let core = Core {
            model: Model::new(properties),
            history: History::new(dictionary).ok_or(io::ErrorKind::OutOfMemory)?,
            pending: 0,
            end: None,
            taken: 0,
            survey: None,
        };
        Ok(Self { core, framing })
    }

    /// Looks for seek points from now on, `spacing` decoded bytes apart; decoding has not begun.
    pub(crate) fn survey(&mut self, spacing: u64) {
        self.core.survey = Some(Survey::new(&self.core.history, spacing));
    }

    /// Takes the seek points that were found. Each comes before any byte behind it is delivered.
    pub(crate) fn take_points(&mut self) -> impl Iterator<Item = LzmaPoint> {
        self.core.survey.iter_mut().flat_map(Survey::take)
    }

    /// Goes on from a point that was found before, behind `decoded` bytes. The error says what is wrong with its
    /// `state`.
    pub(crate) fn resume(&mut self, state: &[u8], decoded: u64) -> Result<(), &'static str> {
        self.core.history.produced = decoded;
        if state == FRESH {
            return Ok(());
        }
        let loaded = Checkpoint::load(state, self.core.history.dictionary)?;
        if loaded.length as u64 > decoded {
            return Err("has a history of another length than it can have");
        }
        self.framing.restore(&loaded, decoded)?;
        self.core.history.restore(&loaded, decoded);
        self.core.model = loaded.model;
        Ok(())
    }

    /// Decodes from `input` into `output`, which is not empty. The input is at least [`Framing::WANTED`] bytes, or all
    /// that there are.
    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let Self { core, framing } = self;
        let (mut taken, mut written) = (0, core.deliver(output));
        while taken == 0 && written == 0 && core.end.is_none() {
            let before = core.history.produced;
            match framing.produce(core, input) {
                Ok(count) => taken = count,
                Err(what) => core.end = Some(Err(what)),
            }
            core.taken += taken as u64;
            let starved = taken == 0 && core.history.produced == before;
            if let Some(survey) = &mut core.survey {
                if core.end.is_some() || starved {
                    survey.finish(&core.history, core.taken);
                } else {
                    survey.advance(&core.history, core.taken);
                }
            }
            written = core.deliver(output);
            if starved {
                break;
            }
        }
        let outcome = match core.end {
            Some(Ok(())) if written == 0 => Outcome::End,
            Some(Err(what)) if written == 0 => Outcome::Damaged(what),
            _ => Outcome::More,
        };
        Step { taken, written, outcome }
    }

    /// Bytes of memory once so many bytes more are decoded.
    pub(crate) fn memory_after(&self, bytes: u64) -> usize {
        let survey = self.core.survey.as_ref().map_or(0, Survey::memory);
        let model = self.core.model.literals.as_flattened().len() * 2;
        size_of::<Self>() + self.core.history.memory_after(bytes) + model + survey
    }
}

impl Core {
    fn deliver(&mut self, output: &mut [u8]) -> usize {
        let hold = self.survey.as_ref().map_or(u64::MAX, Survey::hold);
        self.history.deliver(output, hold)
    }

    /// Decodes at most `room` bytes, as long as no more than `drawn` bytes of the input are drawn.
    pub(super) fn symbols(
        &mut self,
        decoder: &mut RangeDecoder<'_>,
        room: usize,
        drawn: usize,
    ) -> Result<Stop, Invalid> {
        let bounds = Bounds { room, drawn };
        let (model, history, pending) = (&mut self.model, &mut self.history, &mut self.pending);
        match self.survey.as_mut().and_then(|survey| survey.watch(history)) {
            Some(marks) => symbols::decode(model, decoder, history, pending, bounds, marks),
            None => symbols::decode(model, decoder, history, pending, bounds, &mut Nobody),
        }
    }

    /// Makes a seek point here if one is due. `owner` is for [`Framing::restore`].
    pub(super) fn point(&mut self, owner: impl FnOnce() -> Vec<u8>) {
        if let Some(survey) = &mut self.survey
            && survey.is_due(&self.history, self.taken)
        {
            let checkpoint = Checkpoint::new(owner(), &mut self.model, self.history.phase);
            survey.begin(&self.history, self.taken, checkpoint);
        }
    }

    /// Forgets the history. That needs no state, so it is a seek point wherever that is of use.
    pub(super) fn reset_history(&mut self) {
        if let Some(survey) = &mut self.survey {
            survey.fresh(&self.history, self.taken, FRESH);
        }
        self.history.reset();
    }
}
