//! Crash harness: what a file system must answer, and what must be left of it after a crash.
//!
//! What lives here: `model`, an in-memory POSIX model that knows nothing of media or logs, and `powercut`, runners that
//! cut the power of a recording medium under a live file system and judge what recovery makes of it.
//! What may be touched: the model imports nothing of this project. The runners drive the real store and device from
//! outside, through their public faces.
//! What flows through: operations go to the real thing and to the model; answers and whole trees are compared.
//! Tests: `tests/posix_model.rs` compares random sequences. `WELDFS_MODEL_CASES` scales it.
//! A failure prints what is needed to repeat it: the shortest sequence of steps, or a seed.

pub mod model;
pub mod powercut;
