//! Bytes that are wrong, hostile or too many: damage, mutations, bombs, and inputs that fuzzing found.

#[path = "../support/devour.rs"]
mod devour;
#[allow(dead_code, unused_imports, reason = "what other tests use of it")]
#[path = "../../fuzz/src/lib.rs"]
mod entry_points;
#[path = "../support/foreground.rs"]
mod foreground;
#[allow(dead_code, reason = "what other tests use of it")]
#[path = "../support/strace.rs"]
mod strace;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/udf.rs"]
mod udf_image;

mod bad_blocks;
mod bombs;
mod changed;
mod check;
mod corpus;
mod damage_inside;
mod damaged;
mod dictionaries;
mod flipped;
mod hostile;
mod members;
mod memory;
mod mutated;
mod properties;
mod seeds;
mod smoke;
mod suites;
mod verified;
