//! What a C program can hand to the client library.

pub mod capi;
