//! One module for each command.

pub(crate) mod advise;
pub(crate) mod bench;
mod beneath;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod commit;
pub(crate) mod compare;
pub(crate) mod complete;
pub(crate) mod convert;
pub(crate) mod create;
pub(crate) mod difference;
pub(crate) mod extract;
pub(crate) mod find;
pub(crate) mod formats;
pub(crate) mod index;
pub(crate) mod info;
pub(crate) mod ls;
pub(crate) mod mount;
pub(crate) mod mounts;
pub(crate) mod overlay;
pub(crate) mod pages;
mod rewriting;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod unmount;
pub(crate) mod version;
mod window;
