//! Every kernel against an oracle that is written as plainly as can be, over the same cases.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod checks;
mod subjects;
