//! What the sweeps let fail: every kind of single operation, the fused ones in both modes, and what the store does by
//! itself. Each starts from the same small tree and changes one thing.

use crate::hand::Hand;
use weldfs_ciscops::{At, FallocMode, OpenFlags, RenameFlags, TxnMode};

/// Commands by hand.
pub type Command = fn(&mut Hand) -> Result<(), i32>;

/// The part of a life that meets the fault.
#[derive(Clone, Copy)]
pub enum Act {
    /// A command on a mounted store, then its durability.
    Command(Command),
    /// A checkpoint of volatile changes.
    Checkpoint,
    /// Everything that can be drained is.
    Reclaim,
    /// The mount of an image whose device was killed.
    Mount,
    /// The unmount.
    Unmount,
    /// fsck, data included.
    Fsck,
    /// A walk over the tree that reads every byte.
    ReadAll,
}

/// See the module.
pub struct Scenario {
    /// For messages.
    pub name: &'static str,
    /// In which mode its commands run.
    pub mode: TxnMode,
    /// What meets the fault.
    pub act: Act,
    /// In MicroTx: what stands when the command's second change fails. (It fails with an errno; nothing comes back.)
    pub part: Option<Command>,
}

/// The tree that every scenario starts from, checkpointed; some of it is changed again in the log.
///
/// # Errors
/// An errno.
pub fn prepare(hand: &mut Hand) -> Result<(), i32> {
    hand.mkdir("a")?;
    hand.mkdir("b")?;
    hand.mkdir("empty")?;
    hand.put("a/small", &[1; 100])?;
    hand.put("a/block", &[2; 4096])?;
    hand.put("big", &[3; 30_000])?;
    hand.put("b/other", &[4; 5000])?;
    hand.put("gone", &[9; 20_000])?;
    hand.symlink("a/small", "link")?;
    hand.link("a/block", "b/hard")?;
    hand.set_xattr("big", "user.old", b"value")?;
    hand.store().checkpoint().map_err(|_| libc::EIO)?;
    hand.patch("big", At::Offset(5000), &[5; 300])?;
    hand.patch("a/block", At::End, &[6; 700])?;
    hand.with("gone", |h, f| h.truncate(f, 3000))?;
    hand.put("late", &[7; 9000])?;
    hand.sync()
}

fn command(name: &'static str, mode: TxnMode, f: Command) -> Scenario {
    Scenario { name, mode, act: Act::Command(f), part: None }
}

fn single() -> Vec<Scenario> {
    let one = |name, f| command(name, TxnMode::Default, f);
    vec![
        one("creat", |h| h.open("a/new", OpenFlags::WRITE | OpenFlags::CREATE).map(drop)),
        one("creat exclusive", |h| h.open("x", OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL).map(drop)),
        one("open truncating", |h| h.open("big", OpenFlags::WRITE | OpenFlags::TRUNC).map(drop)),
        one("mkdir", |h| h.mkdir("a/dir").map(drop)),
        one("rmdir", |h| h.rmdir("empty").map(drop)),
        one("write small", |h| h.with("a/small", |h, f| h.write(f, At::Offset(10), &[8; 50])).map(drop)),
        one("write one block", |h| h.with("a/block", |h, f| h.write(f, At::Offset(0), &[8; 4096])).map(drop)),
        one("write many blocks", |h| h.with("big", |h, f| h.write(f, At::Offset(100), &[8; 20_000])).map(drop)),
        one("append", |h| h.with("b/other", |h, f| h.write(f, At::End, &[8; 6000])).map(drop)),
        one("write beyond the end", |h| h.with("a/small", |h, f| h.write(f, At::Offset(50_000), &[8; 100])).map(drop)),
        one("truncate down", |h| h.with("big", |h, f| h.truncate(f, 4500)).map(drop)),
        one("truncate up", |h| h.with("a/small", |h, f| h.truncate(f, 70_000)).map(drop)),
        one("fallocate", |h| h.with("b/other", |h, f| h.fallocate(f, FallocMode::Reserve, 0, 40_000)).map(drop)),
        one("punch", |h| h.with("big", |h, f| h.fallocate(f, FallocMode::Punch, 4096, 9000)).map(drop)),
        one("zero range", |h| h.with("big", |h, f| h.fallocate(f, FallocMode::Zero, 100, 12_000)).map(drop)),
        one("link", |h| h.link("a/small", "b/again").map(drop)),
        one("symlink", |h| h.symlink("big", "a/sym").map(drop)),
        one("unlink", |h| h.unlink("big").map(drop)),
        one("unlink one of two names", |h| h.unlink("b/hard").map(drop)),
        one("unlink while open", |h| {
            let f = h.open("late", OpenFlags::READ)?;
            h.unlink("late")?;
            h.close(f).map(drop)
        }),
        one("rename", |h| h.rename("a/small", "b/moved", RenameFlags::empty()).map(drop)),
        one("rename over a file", |h| h.rename("a/block", "b/other", RenameFlags::empty()).map(drop)),
        one("rename a directory", |h| h.rename("a", "b/a", RenameFlags::empty()).map(drop)),
        one("rename, exchanging", |h| h.rename("a", "big", RenameFlags::EXCHANGE).map(drop)),
        one("set an attribute", |h| h.set_xattr("big", "user.new", &[1; 600]).map(drop)),
        one("register a virtual file", |h| h.register("a/virtual", "/big").map(drop)),
        one("remove an attribute", |h| h.remove_xattr("big", "user.old").map(drop)),
    ]
}

fn fused(mode: TxnMode) -> Vec<Scenario> {
    let micro = mode == TxnMode::Micro;
    let named = |name, in_micro, f, part: Option<Command>| Scenario {
        part: part.filter(|_| micro),
        ..command(if micro { in_micro } else { name }, mode, f)
    };
    vec![
        named(
            "store a new file",
            "store a new file, micro",
            |h| h.put("a/stored", &[8; 9000]).map(drop),
            Some(|h| h.open("a/stored", OpenFlags::WRITE | OpenFlags::CREATE).map(drop)),
        ),
        named(
            "store over a file",
            "store over a file, micro",
            |h| h.put("big", &[8; 700]).map(drop),
            Some(|h| h.open("big", OpenFlags::WRITE | OpenFlags::TRUNC).map(drop)),
        ),
        named(
            "append and checksum",
            "append and checksum, micro",
            |h| h.with("b/other", |h, f| h.append_checked(f, &[8; 5000])).map(drop),
            Some(|h| h.with("b/other", |h, f| h.write(f, At::End, &[8; 5000])).map(drop)),
        ),
        named(
            "append little and checksum",
            "append little and checksum, micro",
            |h| h.with("a/small", |h, f| h.append_checked(f, &[8; 80])).map(drop),
            Some(|h| h.with("a/small", |h, f| h.write(f, At::End, &[8; 80])).map(drop)),
        ),
        named(
            "read, then write",
            "read, then write, micro",
            |h| h.swap("big", 6000, At::Offset(3000), &[8; 9000]).map(drop),
            None,
        ),
        named(
            "read, modify, write",
            "read, modify, write, micro",
            |h| h.with("a/block", |h, f| h.add(f, 4090, 77)).map(drop),
            None,
        ),
    ]
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    let own = |name, act| Scenario { name, mode: TxnMode::Default, act, part: None };
    let mut all = single();
    all.extend(fused(TxnMode::Macro));
    all.extend(fused(TxnMode::Micro));
    all.extend([
        own("checkpoint", Act::Checkpoint),
        own("reclaim", Act::Reclaim),
        own("mount with recovery", Act::Mount),
        own("unmount", Act::Unmount),
        own("fsck", Act::Fsck),
        own("read everything", Act::ReadAll),
    ]);
    all
}
