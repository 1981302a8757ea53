//! Codecs against published vectors, hostile input, and other programs that read what they write.
#![cfg(feature = "codecs")]
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod codecs;
mod peers;
