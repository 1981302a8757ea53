//! The form in the drive: a virtual file of the device, whose bytes a kernel makes in a slot.

use super::apps::App;
use super::count::Counted;
use super::forms::{PIECE, Places, Ran, Stored, answer_of_file, timed};
use std::io;
use weldfs::{Direction, Errno, OpenFlags, VirtRange, VirtSpec};

/// Name of the virtual file.
fn name_of(app: &App) -> String {
    format!("/{}.virtual", app.name)
}

/// Registers the virtual file of an application over its file. Returns the parameters that are to be sent when it is
/// open: those that a spec has no room for.
fn register(app: &App, places: &Places<'_>, kernel: &str, bytes: usize) -> io::Result<Option<Vec<u32>>> {
    let params = (app.params)(bytes);
    let (direction, length) = match app.expand {
        None => (Direction::Read, bytes as u64),
        Some(_) => (Direction::Write { cut: true }, u64::MAX),
    };
    let range = VirtRange { path: format!("/{}", app.name).into_bytes(), offset: 0, length };
    let mut spec = VirtSpec { kernel: kernel.to_owned(), params, direction, ranges: vec![range] };
    let sent = match spec.encode() {
        Err(Errno::TOOBIG) => Some(std::mem::take(&mut spec.params)),
        _ => None,
    };
    places.client.virt_register(name_of(app), 0o600, &spec)?;
    Ok(sent)
}

/// Runs it: `kernel` as in a spec, `data` what lies in the application's file, or what is to be written through.
pub(super) fn run(app: &App, places: &Places<'_>, kernel: &str, data: &[u8]) -> io::Result<Ran> {
    let before = Counted::of(places.device);
    let mut ran = Ran::default();
    let start = std::time::Instant::now();
    let sent = register(app, places, kernel, data.len())?;
    let flags = if app.expand.is_none() { OpenFlags::READ } else { OpenFlags::WRITE };
    let file = places.client.vopen(name_of(app), flags)?;
    if let Some(params) = sent {
        file.send_params(&params)?;
    }
    let made = match app.expand {
        None => {
            let out = timed(&mut ran.moving, || drain(&file))?;
            file.vclose()?;
            let mut work = (app.rest)(data.len());
            timed(&mut ran.host, || work.piece(&out));
            ran.answer = timed(&mut ran.host, || work.end());
            out.len() as u64
        }
        Some(_) => timed(&mut ran.moving, || {
            for piece in data.chunks(PIECE) {
                file.vwrite(piece)?;
            }
            file.vclose()
        })?,
    };
    ran.wall = start.elapsed();
    ran.counted = Counted::of(places.device).since(&before);
    let c = &ran.counted;
    ran.drive_bytes = if app.expand.is_none() { c.slot_bytes_in } else { c.slot_bytes_out };
    (ran.link_bytes_in, ran.link_bytes_out, ran.cycles) = (c.link_bytes_in, c.link_bytes_out, c.cycles);
    let payload = if app.expand.is_none() { c.payload_bytes_out } else { made };
    if (c.slot_bytes_in, c.slot_bytes_out, payload) != (data.len() as u64, made, made) {
        return Err(io::Error::other(format!(
            "{}: {kernel} is counted to take {} bytes of {} and to make {} of {made}, of which {payload} came",
            app.name,
            c.slot_bytes_in,
            data.len(),
            c.slot_bytes_out
        )));
    }
    places.client.remove_file(name_of(app))?;
    if app.expand.is_some() {
        ran.answer = answer_of_file(app, &Stored::open(places, false, app.name)?, data.len(), made)?;
    }
    Ok(ran)
}

/// All that the kernel makes.
fn drain(file: &weldfs::VirtFile) -> io::Result<Vec<u8>> {
    let (mut out, mut room) = (Vec::new(), vec![0; PIECE]);
    loop {
        match file.vread(&mut room[..])? {
            0 => return Ok(out),
            n => out.extend_from_slice(&room[..n]),
        }
    }
}
