//! The commit thread of block media.
