//! Random power cuts under four clients: the promise that matters most, tried thousands of times.
//!
//! `script` decides what each client does and what its folder must look like after each step; `run` lets clients work
//! on a real device over a recording medium, then builds crash images (whatever was not flushed or fenced persists in
//! any subset, torn at the medium's unit), recovers each through the real mount, and reads everything back through
//! the real client; `oracle` says what counts as bad.

mod oracle;
mod run;
mod script;

pub use oracle::{Client, Entry, Found, check};
pub use run::{Bad, Config, Report, run};
pub use script::{Folder, Script, Step};
