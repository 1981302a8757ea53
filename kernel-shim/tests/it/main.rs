//! The control plane: attaching, sessions, processes, and what happens when one of them fails.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod api;
mod departures;
mod end_to_end;
mod exerciser;
mod failures;
mod inline;
mod processes;
mod sessions;
mod survives;
