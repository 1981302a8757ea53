//! The rules of the source tree, held by a test instead of by reviewers: `cargo test -p weldfs-tidy`.
//!
//! * [`lengths`], [`markdown`]: short files, functions and lines, in code and in documents;
//! * [`unsafety`]: which files may contain `unsafe`;
//! * [`crates`]: which crate may know which; [`modules`]: which module of a crate may know which;
//! * [`reach`]: no source file that the compiler does not see; [`surface`]: no public item that nothing uses;
//! * [`hooks`]: what is public for the tests of other crates is named in tests;
//! * [`words`]: the field's vocabulary instead of words of our own; [`references`]: what documents name is there.
//!
//! Each rule is a function from the tree to a list of complaints. What a rule needs to be told stands in `tidy.toml`,
//! with a reason wherever it is an exception; an exception that is no longer needed is a complaint, too.
#![forbid(unsafe_code)]

pub mod crates;
pub mod hooks;
pub mod layers;
pub mod lengths;
pub mod markdown;
pub mod modules;
pub mod reach;
pub mod references;
pub mod rules;
pub mod surface;
pub mod tree;
pub mod unsafety;
pub mod words;
