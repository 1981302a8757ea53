//! Time and randomness: one seam each, so that tests can hold both still.

/// Time. LSNs order things, never clocks; a clock dates files and arms the flush timer.
pub trait Clock: Send + Sync {
    /// Monotonic nanoseconds.
    fn now_ns(&self) -> u64;
    /// Wall-clock seconds since 1970 and nanoseconds.
    fn wall(&self) -> (i64, u32);
}

/// Randomness for salts, identities and hash keys.
pub trait Random: Send + Sync {
    /// Fills `buf`.
    fn fill(&self, buf: &mut [u8]);
}
