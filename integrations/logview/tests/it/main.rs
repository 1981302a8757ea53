//! The reader of written logs against the journal that wrote them.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod agrees_with_the_journal;
mod common;
mod worked_example;
