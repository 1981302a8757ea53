//! The experiment runner as a library that the command line calls.
