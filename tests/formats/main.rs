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
mod disk_image;
mod documents;
mod erofs;
mod ext;
mod fat;
mod hfsplus;
mod images;
mod iso9660;
mod lzh;
mod mail;
mod mtree;
mod ntfs;
mod packages;
mod partitions;
mod rar;
mod sevenzip;
mod split;
mod sqlar;
mod squashfs;
mod trees;
mod udf;
mod web;
mod wim;
mod xar;
mod zip;
