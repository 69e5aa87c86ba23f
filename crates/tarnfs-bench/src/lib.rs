//! Measures programs on real files, and reports with tables and plots.
//!
//! A comparison gets [`Settings`] and returns a [`Report`]. It runs programs with [`measure`], in turn, several times
//! each, in a [`Scratch`] folder that is removed when it ends, however it ends. Every wait in here ends soon after
//! [`Settings::cancel`], and what was started is ended with it.

pub mod compress;
mod error;
pub mod index;
mod machine;
pub mod made;
pub mod measure;
pub mod mount;
pub mod report;
pub mod scale;
mod scratch;
pub mod seeded;
mod settings;
pub mod tar;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use error::Error;
pub use machine::Machine;
pub use report::Report;
pub use scratch::Scratch;
pub use settings::Settings;
