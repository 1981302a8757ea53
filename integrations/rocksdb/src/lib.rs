//! The RocksDB FileSystem plug-in: a room reserved, and honest about being empty.
//!
//! What will live here: a translation of the engine's file calls to the `weldfs` client library and its fused
//! operations. It will translate and hold no logic of its own. What it may touch: `weldfs-userlib` only.
//!
//! Nothing is implemented yet; the engine works today, unmodified, through `weldfs run` (see docs/PRELOAD.md).
#![forbid(unsafe_code)]
