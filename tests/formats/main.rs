//! Each format against the tools that write it.

#[path = "../support/peers.rs"]
mod peers;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/udf.rs"]
mod udf_image;

mod ar;
mod cab;
mod choice;
mod cpio;
mod ext;
mod fat;
mod iso9660;
mod lzh;
mod packages;
mod partitions;
mod rar;
mod sevenzip;
mod split;
mod squashfs;
mod trees;
mod udf;
mod web;
mod xar;
mod zip;
