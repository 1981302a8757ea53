//! SIGKILL of real device processes under real clients, at any time and at every named point.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod any_time;
mod crash_points;
mod kill_rig;
mod virtual_files;
