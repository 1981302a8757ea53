//! The client: queue pairs, POSIX-like calls, fused calls.
