//! LD_PRELOAD interception.
