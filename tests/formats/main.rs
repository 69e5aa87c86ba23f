//! Each format against the tools that write it.

#[path = "../support/mod.rs"]
mod support;

mod ar;
mod cpio;
mod iso9660;
mod rar;
mod sevenzip;
mod split;
mod squashfs;
mod zip;
