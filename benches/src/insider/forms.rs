//! The four forms of an application, as they really run on this machine: wall time, host work, bytes.

use super::apps::{App, Expand};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use weldfs::Client;
use weldfs_fpga::kernel::Kernel;

/// Bytes of a piece, about.
const PIECE: usize = 1 << 20;

/// Who does what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The host, through the kernel of its operating system.
    Posix,
    /// The host, through WeldFS's queues.
    Bypass,
    /// The same, computing while it reads.
    Pipelined,
    /// A kernel in the drive; the host does the rest.
    InDrive,
}

impl Form {
    /// In the order of the paper's figure.
    pub const ALL: [Form; 4] = [Form::Posix, Form::Bypass, Form::Pipelined, Form::InDrive];

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Form::Posix => "host, POSIX",
            Form::Bypass => "host, bypass",
            Form::Pipelined => "bypass + pipelining",
            Form::InDrive => "in drive",
        }
    }
}

/// What a run of a form came to.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// What it found.
    pub answer: String,
    /// All of it.
    pub wall: Duration,
    /// Of it, inside calls that move data.
    pub moving: Duration,
    /// Of it, the host's own work.
    pub host: Duration,
    /// Of it, the kernel's model on this machine.
    pub kernel: Duration,
    /// Clock cycles of the kernel.
    pub cycles: u64,
    /// Bytes of the medium that were asked for.
    pub drive_bytes: u64,
    /// Bytes that crossed the link.
    pub link_bytes: u64,
}

/// Where a form keeps its file.
pub struct Places<'a> {
    /// A directory of the host.
    pub dir: &'a Path,
    /// A device.
    pub client: &'a Client,
}

/// A file, by either way.
enum Stored {
    Host(File),
    Weld(weldfs::File),
}

impl Stored {
    fn open(places: &Places<'_>, posix: bool, name: &str) -> io::Result<Stored> {
        if posix {
            let file =
                File::options().read(true).write(true).create(true).truncate(false).open(places.dir.join(name))?;
            return Ok(Stored::Host(file));
        }
        let options = weldfs::OpenOptions::new().read(true).write(true).create(true);
        Ok(Stored::Weld(places.client.open(format!("/{name}"), &options)?))
    }

    fn read(&self, room: &mut [u8], at: u64) -> io::Result<()> {
        let mut got = 0;
        while got < room.len() {
            let n = match self {
                Stored::Host(file) => file.read_at(&mut room[got..], at + got as u64)?,
                Stored::Weld(file) => file.read_at(&mut room[got..], at + got as u64)?,
            };
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            got += n;
        }
        Ok(())
    }

    fn write(&self, data: &[u8], at: u64) -> io::Result<()> {
        let mut put = 0;
        while put < data.len() {
            put += match self {
                Stored::Host(file) => file.write_at(&data[put..], at + put as u64)?,
                Stored::Weld(file) => file.write_at(&data[put..], at + put as u64)?,
            };
        }
        Ok(())
    }
}

fn timed<T>(into: &mut Duration, body: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = body();
    *into += start.elapsed();
    result
}

/// Bytes of a piece of whole units.
fn piece_of(unit: usize) -> usize {
    (PIECE / unit).max(1) * unit
}

/// A piece through the kernel; its output is appended.
fn step(kernel: &mut dyn Kernel, data: &[u8], eop: bool, out: &mut Vec<u8>, cycles: &mut u64) -> io::Result<()> {
    let (mut at, mut room) = (0, vec![0; PIECE]);
    loop {
        let step = kernel.step(&data[at..], eop, &mut room).map_err(|e| io::Error::other(e.to_string()))?;
        out.extend_from_slice(&room[..step.made]);
        (at, *cycles) = (at + step.taken, *cycles + step.cycles);
        if step.done || (!eop && at == data.len() && step.made == 0) {
            return Ok(());
        }
        if step.taken == 0 && step.made == 0 {
            return Err(io::Error::other("the kernel neither takes nor makes anything"));
        }
    }
}

/// The kernel of an application, begun.
fn kernel_of(app: &App, bytes: usize) -> io::Result<(Box<dyn Kernel>, u64)> {
    let builtin = weldfs_kernels::find(app.kernel)
        .ok_or_else(|| io::Error::other(format!("there is no kernel '{}'", app.kernel)))?;
    let params = (app.params)(bytes);
    let mut kernel = (builtin.make)();
    kernel.reset(&params).map_err(|e| io::Error::other(format!("{}: {e}", app.kernel)))?;
    Ok((kernel, params.len() as u64 * 4))
}

/// Puts the data of an application where a form will find it; of a write kernel nothing.
pub fn prepare(app: &App, places: &Places<'_>, data: &[u8]) -> io::Result<()> {
    if app.expand.is_none() {
        Stored::open(places, true, app.name)?.write(data, 0)?;
        Stored::open(places, false, app.name)?.write(data, 0)?;
    }
    Ok(())
}

/// Takes away what an application has stored.
pub fn clear(app: &App, places: &Places<'_>) -> io::Result<()> {
    std::fs::remove_file(places.dir.join(app.name))?;
    places.client.remove_file(format!("/{}", app.name))
}

/// Runs a form; `data` is what was prepared, or what is to be written.
pub fn run(app: &App, form: Form, places: &Places<'_>, data: &[u8]) -> io::Result<Ran> {
    let file = Stored::open(places, form == Form::Posix, app.name)?;
    let start = Instant::now();
    let mut ran = match (app.expand, form) {
        (None, Form::Posix | Form::Bypass) => read(app, &file, data.len()),
        (None, Form::Pipelined) => read_pipelined(app, &file, data.len()),
        (None, Form::InDrive) => read_in_drive(app, &file, data.len()),
        (Some(expand), Form::Posix | Form::Bypass) => write(&file, data, expand),
        (Some(expand), Form::Pipelined) => write_pipelined(&file, data, expand),
        (Some(_), Form::InDrive) => write_in_drive(app, &file, data),
    }?;
    ran.wall = start.elapsed();
    if app.expand.is_some() {
        // What lies there now is the answer; looking at it is no part of the run.
        let (mut work, mut room) = ((app.rest)(data.len()), vec![0; PIECE]);
        let mut at = 0;
        while at < ran.drive_bytes {
            let n = (ran.drive_bytes - at).min(PIECE as u64) as usize;
            file.read(&mut room[..n], at)?;
            work.piece(&room[..n]);
            at += n as u64;
        }
        ran.answer = work.end();
    }
    Ok(ran)
}

/// The pieces of a file: offset and length.
fn pieces(bytes: usize, unit: usize) -> impl Iterator<Item = (usize, usize)> {
    let piece = piece_of(unit);
    (0..bytes.div_ceil(piece)).map(move |n| (n * piece, piece.min(bytes - n * piece)))
}

fn read(app: &App, file: &Stored, bytes: usize) -> io::Result<Ran> {
    let mut ran = Ran { drive_bytes: bytes as u64, link_bytes: bytes as u64, ..Ran::default() };
    let (mut work, mut room) = ((app.host)(bytes), vec![0; piece_of(app.unit)]);
    for (at, n) in pieces(bytes, app.unit) {
        timed(&mut ran.moving, || file.read(&mut room[..n], at as u64))?;
        timed(&mut ran.host, || work.piece(&room[..n]));
    }
    ran.answer = timed(&mut ran.host, || work.end());
    Ok(ran)
}

fn read_pipelined(app: &App, file: &Stored, bytes: usize) -> io::Result<Ran> {
    let mut ran = Ran { drive_bytes: bytes as u64, link_bytes: bytes as u64, ..Ran::default() };
    let mut work = (app.host)(bytes);
    let (full, filled) = mpsc::sync_channel::<Vec<u8>>(2);
    let (empty, emptied) = mpsc::channel::<Vec<u8>>();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut moving = Duration::ZERO;
            for (at, n) in pieces(bytes, app.unit) {
                let mut room = emptied.try_recv().unwrap_or_default();
                room.resize(n, 0);
                timed(&mut moving, || file.read(&mut room, at as u64))?;
                if full.send(room).is_err() {
                    break;
                }
            }
            Ok::<_, io::Error>(moving)
        });
        for room in filled {
            timed(&mut ran.host, || work.piece(&room));
            let _ = empty.send(room);
        }
        ran.moving = reader.join().map_err(|_| io::Error::other("the reading thread panicked"))??;
        Ok::<_, io::Error>(())
    })?;
    ran.answer = timed(&mut ran.host, || work.end());
    Ok(ran)
}

fn read_in_drive(app: &App, file: &Stored, bytes: usize) -> io::Result<Ran> {
    let (mut kernel, params) = kernel_of(app, bytes)?;
    let mut ran = Ran { drive_bytes: bytes as u64, link_bytes: params, ..Ran::default() };
    let (mut room, mut out) = (vec![0; piece_of(app.unit)], Vec::new());
    let mut work = (app.rest)(bytes);
    for (at, n) in pieces(bytes, app.unit) {
        timed(&mut ran.moving, || file.read(&mut room[..n], at as u64))?;
        let (eop, cycles) = (at + n == bytes, &mut ran.cycles);
        timed(&mut ran.kernel, || step(&mut *kernel, &room[..n], eop, &mut out, cycles))?;
    }
    ran.link_bytes += out.len() as u64;
    timed(&mut ran.host, || work.piece(&out));
    ran.answer = timed(&mut ran.host, || work.end());
    Ok(ran)
}

fn write(file: &Stored, data: &[u8], expand: Expand) -> io::Result<Ran> {
    let (mut ran, mut made) = (Ran::default(), Vec::new());
    for (at, n) in pieces(data.len(), PIECE / 8) {
        made.clear();
        timed(&mut ran.host, || expand(&data[at..at + n], &mut made));
        timed(&mut ran.moving, || file.write(&made, ran.drive_bytes))?;
        ran.drive_bytes += made.len() as u64;
    }
    ran.link_bytes = ran.drive_bytes;
    Ok(ran)
}

fn write_pipelined(file: &Stored, data: &[u8], expand: Expand) -> io::Result<Ran> {
    let mut ran = Ran::default();
    let (full, filled) = mpsc::sync_channel::<Vec<u8>>(2);
    std::thread::scope(|scope| {
        let host = scope.spawn(move || {
            let mut host = Duration::ZERO;
            for (at, n) in pieces(data.len(), PIECE / 8) {
                let mut made = Vec::new();
                timed(&mut host, || expand(&data[at..at + n], &mut made));
                if full.send(made).is_err() {
                    break;
                }
            }
            host
        });
        for made in filled {
            timed(&mut ran.moving, || file.write(&made, ran.drive_bytes))?;
            ran.drive_bytes += made.len() as u64;
        }
        ran.host = host.join().map_err(|_| io::Error::other("the expanding thread panicked"))?;
        Ok::<_, io::Error>(())
    })?;
    ran.link_bytes = ran.drive_bytes;
    Ok(ran)
}

fn write_in_drive(app: &App, file: &Stored, data: &[u8]) -> io::Result<Ran> {
    let (mut kernel, params) = kernel_of(app, data.len())?;
    let mut ran = Ran { link_bytes: params + data.len() as u64, ..Ran::default() };
    let mut made = Vec::new();
    for (at, n) in pieces(data.len(), PIECE / 8) {
        made.clear();
        let (eop, cycles) = (at + n == data.len(), &mut ran.cycles);
        timed(&mut ran.kernel, || step(&mut *kernel, &data[at..at + n], eop, &mut made, cycles))?;
        timed(&mut ran.moving, || file.write(&made, ran.drive_bytes))?;
        ran.drive_bytes += made.len() as u64;
    }
    Ok(ran)
}
