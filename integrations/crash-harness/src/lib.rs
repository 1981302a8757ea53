//! Crash harness: the POSIX model, the oracle, and the power-cut runners.
//!
//! What lives here: `model`, an in-memory file system that knows nothing of storagefs and says what POSIX wants;
//! `real`, the store behind the same vocabulary; `powercut`, which lets clients work on a real device over a recording
//! medium, cuts the power at random and asks an oracle; `states`, which takes short workloads and looks at every state
//! that a power cut can leave of them.
//!
//! What it may touch: whatever it drives. What flows through: operations in, their results and the recovered tree
//! out, and a seed with every failure.

pub mod catalogue;
pub mod flips;
pub mod hand;
pub mod model;
pub mod powercut;
pub mod real;
pub mod states;
pub mod sweep;
