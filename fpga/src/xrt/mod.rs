//! Kernels on a real card, through the library that AMD's runtime XRT has for it, in a process of its own.
//!
//! * `cards`: which cards this machine has, from sysfs alone.
//! * `place`: which of them is used, through which library.
//! * `wire`: the messages between this process and the helper.
//! * `helper`: what runs in the helper, around `library`, the binding by dlopen(3).
//! * `remote`: the helper as a [`crate::kernel::Kernel`].
//!
//! XRT's library aborts, exits or crashes the process that loads it where no card is set up, so it is loaded nowhere
//! but in the helper, whose end is an error like any other. This back-end has been compiled and tested against the
//! library without a card, and against libraries made for tests; it has not been run on hardware.

mod cards;
mod helper;
#[allow(unsafe_code)] // the calls of a C library
mod library;
mod place;
mod remote;
mod wire;

pub use cards::{Card, State, cards};
pub(crate) use helper::serve;
pub use place::Place;
pub(crate) use remote::XRT;
pub use remote::{Config, Remote, library_file};
