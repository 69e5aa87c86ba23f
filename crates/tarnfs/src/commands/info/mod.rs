//! `tarnfs info`: what an archive consists of, what is slow to read in it and why, and what `convert` would give.

mod facts;
mod faster;
mod in_json;
mod in_words;
mod slow;

use std::path::Path;

use tarnfs_tree::open::Options;

use crate::args::{Info, Open};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::terminal::{Output, output_failure};
use facts::Facts;

/// Says of each archive what is known of it.
pub(crate) fn run(arguments: &Info) -> Result<Code, Failure> {
    let mut is_behind_others = false;
    inside::each(&arguments.archives, &arguments.open, |archive, options| {
        let told = one(archive, options, &arguments.open)?;
        let mut out = Output::new();
        let written = if arguments.json {
            out.json(&told.json)
        } else {
            told.words.print(&mut out, std::mem::replace(&mut is_behind_others, true))
        };
        written.and_then(|()| std::io::Write::flush(&mut out)).map_err(|error| output_failure(&error))?;
        Ok(told.code)
    })
}

/// All that there is to say of an archive.
struct Told {
    words: in_words::Lines,
    json: serde_json::Value,
    code: Code,
}

fn one(archive: &Path, options: &Options, open: &Open) -> Result<Told, Failure> {
    let opened = inside::open_quietly(archive, options).map_err(|failure| {
        inside::of_folder(archive, failure, "of a folder, `tarnfs advise` says which compression is best for it")
    })?;
    inside::tell_of_the_rest(archive, &opened);
    let facts = Facts::of(archive, &opened, options)?;
    let slow = slow::reasons(&facts);
    let faster = faster::commands(&facts, open);
    let code = if opened.index.summary().notes.is_empty() { Code::Success } else { Code::Damaged };
    let words = in_words::lines(&facts, &slow, &faster);
    Ok(Told { words, json: in_json::object(&facts, &slow, &faster), code })
}
