//! The four forms of an application, as they really run on this machine: wall time, host work, bytes.

use super::apps::{App, Expand};
use super::count::Counted;
use super::drive;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use weldfs::Client;
use weldfs_device::Device;

/// Bytes of a piece, about.
pub(super) const PIECE: usize = 1 << 20;

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
    /// A kernel in a slot of the drive; the host does the rest.
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
    /// Clock cycles of the slots, counted.
    pub cycles: u64,
    /// Bytes of the medium that were asked for.
    pub drive_bytes: u64,
    /// Bytes that crossed the link from host to drive.
    pub link_bytes_in: u64,
    /// The same from drive to host.
    pub link_bytes_out: u64,
    /// What the device counted; nothing where there is none (POSIX).
    pub counted: Counted,
}

impl Ran {
    /// Bytes over the link, both ways.
    pub fn link_bytes(&self) -> u64 {
        self.link_bytes_in + self.link_bytes_out
    }
}

/// Where a form keeps its file.
pub struct Places<'a> {
    /// A directory of the host.
    pub dir: &'a Path,
    /// A device, by its queues.
    pub client: &'a Client,
    /// The same device, for what it counts.
    pub device: &'a Device,
}

/// A file, by either way.
pub(super) enum Stored {
    Host(File),
    Weld(weldfs::File),
}

impl Stored {
    pub(super) fn open(places: &Places<'_>, posix: bool, name: &str) -> io::Result<Stored> {
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

pub(super) fn timed<T>(into: &mut Duration, body: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = body();
    *into += start.elapsed();
    result
}

/// Bytes of a piece of whole units.
fn piece_of(unit: usize) -> usize {
    (PIECE / unit).max(1) * unit
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
    match std::fs::remove_file(places.dir.join(app.name)) {
        // A write kernel's, of which only forms without POSIX ran.
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    places.client.remove_file(format!("/{}", app.name))
}

/// Runs a form of the host, or the one in the drive with this back-end; `data` is what was prepared, or what is to be
/// written.
pub fn run(app: &App, form: Form, backend: &str, places: &Places<'_>, data: &[u8]) -> io::Result<Ran> {
    if form == Form::InDrive {
        return drive::run(app, places, &format!("{}:{backend}", app.kernel), data);
    }
    let before = Counted::of(places.device);
    let file = Stored::open(places, form == Form::Posix, app.name)?;
    let start = Instant::now();
    let mut ran = match (app.expand, form) {
        (None, Form::Pipelined) => read_pipelined(app, &file, data.len()),
        (None, _) => read(app, &file, data.len()),
        (Some(expand), Form::Pipelined) => write_pipelined(&file, data, expand),
        (Some(expand), _) => write(&file, data, expand),
    }?;
    ran.wall = start.elapsed();
    ran.counted = Counted::of(places.device).since(&before);
    crossed(app, form, &mut ran)?;
    if app.expand.is_some() {
        ran.answer = answer_of_file(app, &file, data.len(), ran.drive_bytes)?;
    }
    Ok(ran)
}

/// What crossed the link in a form of the host: through WeldFS's queues as the device counted it, which must be all of
/// it and none of it through a kernel; through the host's kernel the bytes themselves.
fn crossed(app: &App, form: Form, ran: &mut Ran) -> io::Result<()> {
    let (c, bytes) = (&ran.counted, ran.drive_bytes);
    let reads = app.expand.is_none();
    let (payload, idle) =
        if reads { (c.payload_bytes_out, c.payload_bytes_in) } else { (c.payload_bytes_in, c.payload_bytes_out) };
    if form == Form::Posix {
        (ran.link_bytes_in, ran.link_bytes_out) = if reads { (0, bytes) } else { (bytes, 0) };
    } else {
        (ran.link_bytes_in, ran.link_bytes_out) = (c.link_bytes_in, c.link_bytes_out);
    }
    let expected = if form == Form::Posix { 0 } else { bytes };
    if payload != expected || c.slot_bytes_in != 0 || idle > bytes / 100 {
        let (name, form) = (app.name, form.name());
        return Err(io::Error::other(format!(
            "{name}, {form}: {bytes} bytes were moved, and the device counted {c:?}"
        )));
    }
    Ok(())
}

/// What lies in a file of a write kernel, of so many bytes: its answer. Looking at it is no part of a run.
pub(super) fn answer_of_file(app: &App, file: &Stored, data: usize, bytes: u64) -> io::Result<String> {
    let (mut work, mut room) = ((app.rest)(data), vec![0; PIECE]);
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(PIECE as u64) as usize;
        file.read(&mut room[..n], at)?;
        work.piece(&room[..n]);
        at += n as u64;
    }
    Ok(work.end())
}

/// The pieces of a file: offset and length.
fn pieces(bytes: usize, unit: usize) -> impl Iterator<Item = (usize, usize)> {
    let piece = piece_of(unit);
    (0..bytes.div_ceil(piece)).map(move |n| (n * piece, piece.min(bytes - n * piece)))
}

fn read(app: &App, file: &Stored, bytes: usize) -> io::Result<Ran> {
    let mut ran = Ran { drive_bytes: bytes as u64, ..Ran::default() };
    let (mut work, mut room) = ((app.host)(bytes), vec![0; piece_of(app.unit)]);
    for (at, n) in pieces(bytes, app.unit) {
        timed(&mut ran.moving, || file.read(&mut room[..n], at as u64))?;
        timed(&mut ran.host, || work.piece(&room[..n]));
    }
    ran.answer = timed(&mut ran.host, || work.end());
    Ok(ran)
}

fn read_pipelined(app: &App, file: &Stored, bytes: usize) -> io::Result<Ran> {
    let mut ran = Ran { drive_bytes: bytes as u64, ..Ran::default() };
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

fn write(file: &Stored, data: &[u8], expand: Expand) -> io::Result<Ran> {
    let (mut ran, mut made) = (Ran::default(), Vec::new());
    for (at, n) in pieces(data.len(), PIECE / 8) {
        made.clear();
        timed(&mut ran.host, || expand(&data[at..at + n], &mut made));
        timed(&mut ran.moving, || file.write(&made, ran.drive_bytes))?;
        ran.drive_bytes += made.len() as u64;
    }
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
    Ok(ran)
}
