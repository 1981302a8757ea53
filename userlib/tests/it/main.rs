//! The client library against a device that is played by the test.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod aio;
mod mock;
mod queues;
