//! The `weldfs` command.
fn main() {}
