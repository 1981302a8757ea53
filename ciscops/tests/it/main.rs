//! The contract, from the outside: layouts, decoders, programs and rings.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod attach_messages;
mod commands_document;
mod decoder_is_total;
mod fused_is_its_expansion;
mod hostile_client;
mod program_bodies;
mod program_is_its_steps;
mod program_kernels;
mod program_refusals;
mod program_scans;
mod program_text;
#[cfg(all(feature = "codecs", feature = "ciphers"))]
mod program_transforms;
mod ring_two_sides;
mod support;
mod templates;
mod wire_layout;
