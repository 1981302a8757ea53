//! Queued log bytes and data of block media.
