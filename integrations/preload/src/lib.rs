//! `libweldfs_preload.so`: lets an unmodified program keep its files inside the device.
//!
//! What lives here: `hooks/`, a file per family of libc functions that we shadow; below it `names` and `path` (whose is
//! this name?), `fdname` (does it mean a descriptor?), `table` (whose is this descriptor?), `mount` (what the kernel
//! finds by itself), `promote` (what the kernel takes over; `registry`: which files it has mapped, `promotion`: what is
//! known of one), `cwd`, `stdio`, `dirs` (what libc or the kernel would keep), `device` (the client), `config` (the
//! environment), `abi` and `sys` (the C side), `memory` (is it there?), `limit` (of file sizes), `merge` and `look`,
//! `listed` (calls that do not wait, and calls that are answered here; `place`: an offset that is kept here), `pages`
//! (reads that are answered here; `reader`: how a file is read, `chunks`: where its bytes are kept), `report` (words to
//! the user), `counts` (what became of the calls).
//!
//! What flows through: a hook finds out whether its name or descriptor belongs to the device; if not, libc's own
//! function is called at once. If so, the same call is made through `weldfs::Raw`, and errno comes back.
//!
//! What must not happen here: no file-system logic (the device decides), no state that another process would need,
//! no call on a device file that quietly lands elsewhere: what cannot be done fails with an errno.

// Under test the hooks are not exported, and most of them are not called.
#![cfg_attr(test, allow(dead_code, non_snake_case))]

mod abi;
mod atomic;
mod chunks;
mod config;
mod counts;
mod cwd;
mod device;
mod dirs;
mod fdname;
mod hooks;
mod limit;
mod listed;
mod look;
mod memory;
mod merge;
mod mount;
mod names;
mod pages;
mod path;
mod patterns;
mod place;
mod promote;
mod promotion;
mod reader;
mod registry;
mod report;
mod stdio;
mod sys;
mod table;
