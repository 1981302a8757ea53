//! What goes for names, paths, attributes and locks: commands that each do more than their entry shows.

use crate::clients::families::{Ground, HOME, forever};
use crate::clients::victim::{SECRET, SHARED};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::io;
use weldfs::{
    Client, FallocMode, Handle, LockKind, LockSpace, OpenFlags, OpenOptions, RenameFlags, Whence, XattrFlags,
};
use weldfs_ciscops::program::text;

/// Links on the way of one path: one fewer than are followed.
const LINKS: usize = 39;
/// Directories below each other.
const DEEP: usize = 2_000;
/// Attributes of one file, and pieces of another.
const XATTRS: usize = 4_000;
const FRAGMENTS: u64 = 4_000;
/// Locks on single bytes.
const LOCKS: u64 = 2_000;

fn program(client: &Client, text: &str) -> io::Result<()> {
    let parsed = text::parse(text, &[]).map_err(|e| io::Error::other(e.to_string()))?;
    client.raw().program(&parsed.body, &mut [], |_, _| 0)?.ok()?;
    Ok(())
}

/// A file that compresses badly.
pub fn noise(g: &Ground) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 20];
    SmallRng::seed_from_u64(1).fill_bytes(&mut bytes);
    g.client.write(format!("{HOME}/noise"), &bytes)
}

/// Steps that take the device long and change nothing; with those that follow a program is as long as one may be.
fn computing(after: usize) -> String {
    let home = &HOME[1..];
    let mut text = format!("buffer b0 512k; buffer b1 600k; open \"{home}/noise\" r; read 0 512k -> b0\n");
    (0..14 - after).for_each(|_| text.push_str("compress zstd b0 -> b1\n"));
    text
}

pub fn hold_change(g: &Ground) -> io::Result<()> {
    let text = format!("{}mkdir \"victim/mine\"\nunlink \"victim/secret\"", computing(2));
    forever(4, |_| program(&g.client, &text))
}

pub fn hold_search(g: &Ground) -> io::Result<()> {
    let text = format!("{}unlink \"victim/not-there\"", computing(1));
    forever(4, |_| program(&g.client, &text))
}

pub fn hold_read(g: &Ground) -> io::Result<()> {
    let text = format!("{}open \"{}\" r", computing(1), &SHARED[1..]);
    forever(4, |_| program(&g.client, &text))
}

/// The same of programs that have changed a file already when they compute, with what they read of it.
pub fn hold_done(g: &Ground) -> io::Result<()> {
    let home = &HOME[1..];
    forever(4, |i| {
        let mut text = format!(
            "buffer b0 512k; buffer b1 600k; open \"{home}/noise\" r as n; read n 0 512k -> b0\n\
             open \"{home}/done{i}\" rw create as d; write d 0 b0; read d 0 512k -> b0\n"
        );
        (0..10).for_each(|_| text.push_str("compress zstd b0 -> b1\n"));
        text.push_str("unlink \"victim/not-there\"");
        program(&g.client, &text)
    })
}

/// `d`, and links that lead through it and back again, each to the next.
pub fn links(g: &Ground) -> io::Result<()> {
    g.client.create_dir(format!("{HOME}/d"))?;
    for i in 0..LINKS {
        let last = if i + 1 == LINKS { "d".to_owned() } else { format!("l{}", i + 1) };
        let target = "d/../".repeat((4000 - last.len()) / 5) + &last;
        g.client.symlink(target, format!("{HOME}/l{i}"))?;
    }
    Ok(())
}

pub fn walks(g: &Ground) -> io::Result<()> {
    forever(4, |i| {
        let path = format!("{HOME}/l0/x{i}");
        if i & 1 == 0 { g.client.metadata(path).map(drop) } else { g.client.rename(path, format!("{HOME}/l0/y{i}")) }
    })
}

pub fn walk_programs(g: &Ground) -> io::Result<()> {
    let at = format!("{}/l0", &HOME[1..]);
    let step = |i: usize| format!("rename \"{at}/{}\" \"{at}/{}\"\n", i % 2, (i + 1) % 2);
    let text: String = (0..16).map(step).collect();
    let _ = g.client.create(format!("{HOME}/d/0"));
    forever(4, |_| program(&g.client, &text))
}

/// Directories in each other, and at the end of the way a handle of the lowest.
pub fn deep(g: &Ground) -> io::Result<()> {
    let raw = g.client.raw();
    let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
    let mut at = raw.openat(Handle::ROOT, HOME.as_bytes(), flags, 0, 0)?.handle;
    for _ in 0..DEEP {
        raw.mkdirat(at, b"d", 0o755)?;
        let next = raw.openat(at, b"d", flags, 0, 0)?.handle;
        raw.close(at)?;
        at = next;
    }
    raw.mkdirat(at, b"last", 0o755)?;
    Ok(())
}

pub fn rename(g: &Ground) -> io::Result<()> {
    let raw = g.client.raw();
    let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
    let home = raw.openat(Handle::ROOT, HOME.as_bytes(), flags, 0, 0)?.handle;
    let mut low = home;
    while let Ok(next) = raw.openat(low, b"d", flags, 0, 0) {
        low = next.handle;
    }
    forever(4, |i| {
        let raw = g.client.raw();
        let name = format!("moved{i}");
        // Into itself, which is found at the end of the way up only; and a directory from the top down.
        let _ = raw.renameat(home, b"d", low, b"x", RenameFlags::empty());
        let _ = raw.mkdirat(home, name.as_bytes(), 0o755);
        raw.renameat(home, name.as_bytes(), low, name.as_bytes(), RenameFlags::empty())?;
        Ok(raw.rmdirat(low, name.as_bytes())?)
    })
}

pub fn many_xattrs(g: &Ground) -> io::Result<()> {
    let path = format!("{HOME}/named");
    let file = g.client.create(path)?;
    file.set_xattr("user.first", b"x")?;
    // (A file system of the host has room for fewer.)
    for i in 0..XATTRS {
        if file.set_xattr(&format!("user.attribute-{i}"), b"x").is_err() {
            break;
        }
    }
    Ok(())
}

pub fn xattrs(g: &Ground) -> io::Result<()> {
    forever(4, |i| {
        let (path, name) = (format!("{HOME}/named"), format!("user.new-{i}"));
        let raw = g.client.raw();
        raw.set_xattr(Handle::ROOT, path.as_bytes(), true, name.as_bytes(), b"y", XattrFlags::empty())?;
        Ok(raw.remove_xattr(Handle::ROOT, path.as_bytes(), true, name.as_bytes())?)
    })
}

/// A file whose neighbouring blocks are never neighbours on the medium.
pub fn fragments(g: &Ground) -> io::Result<()> {
    let options = OpenOptions::new().read(true).write(true).create(true);
    let [a, b] = ["pieces", "between"].map(|name| g.client.open(format!("{HOME}/{name}"), &options));
    let (a, b) = (a?, b?);
    for i in 0..FRAGMENTS {
        a.write_all_at(&[1; 4096], i * 4096)?;
        if i % 2 == 0 {
            b.write_all_at(&[2; 4096], i * 4096)?;
        }
    }
    b.allocate(FallocMode::Punch, 0, 4096)
}

pub fn seeks(g: &Ground) -> io::Result<()> {
    let options = OpenOptions::new().read(true);
    let file = g.client.open(format!("{HOME}/pieces"), &options)?;
    forever(4, |_| file.seek_to(Whence::Hole, 0).map(drop))
}

pub fn lock_joins(g: &Ground) -> io::Result<()> {
    let options = OpenOptions::new().read(true).write(true).create(true);
    let files: Vec<_> =
        (0..4).map(|i| g.client.open(format!("{HOME}/locked{i}"), &options)).collect::<io::Result<_>>()?;
    forever(4, |i| {
        let (raw, h, space) = (g.client.raw(), files[i as usize].handle(), LockSpace::Process);
        for n in 0..LOCKS {
            if raw.lock_set(h, space, LockKind::Read, n * 2, 1, 1).is_err() {
                break;
            }
        }
        raw.lock_set(h, space, LockKind::Read, 0, LOCKS * 2, 1)?;
        Ok(raw.lock_set(h, space, LockKind::Unlock, 0, 0, 1)?)
    })
}

pub fn locks(g: &Ground) -> io::Result<()> {
    forever(8, |i| {
        let raw = g.client.raw();
        let by_path = raw.openat(Handle::ROOT, SECRET.as_bytes(), OpenFlags::PATH, 0, 0);
        if let Ok(opened) = by_path {
            let _ = raw.lock_set(opened.handle, LockSpace::Flock, LockKind::Write, 0, 0, 0);
            raw.close(opened.handle)?;
        }
        let h = raw.openat(Handle::ROOT, SHARED.as_bytes(), OpenFlags::READ, 0, 0)?.handle;
        for n in 0..4_200 {
            if raw.lock_set(h, LockSpace::Process, LockKind::Read, n * 2, 1, u64::from(i) << 32 | n).is_err() {
                break;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        Ok(raw.close(h)?)
    })
}
