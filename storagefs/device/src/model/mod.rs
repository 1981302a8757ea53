//! The modelled hardware: when what really happened at once would have happened there.
//!
//! * `bucket`: a token bucket and a delay line, of which the others are made;
//! * `link`: when a completion may appear; `media`: when the drive's channels have moved what was asked of them.

mod bucket;
mod link;
mod media;

pub use link::{LinkModel, Took};
pub use media::{MediaModel, collect, collected, on_modelled};
