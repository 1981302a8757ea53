//! The helper: answers the messages of `wire` on its standard input, a socket, until that ends.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::library::Opened;
use super::wire::{self, DONE, ERRNO, FAILED, OPEN, RUN};

/// What the process `weldfs kernel-host --xrt LIBRARY` does. It dies with its parent, and it may die of the library.
///
/// # Errors
/// Standard input is no socket of a parent's, or breaks.
pub fn serve(library: &Path) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let mut parent = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut opened = None;
    loop {
        let (kind, body) = match wire::receive(&mut parent) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            received => received?,
        };
        let answer = match kind {
            OPEN => {
                // One at a time: what was open is closed first.
                opened = None;
                open(library, &body).map(|o| opened = Some(o)).map(|()| Ok(Vec::new()))
            }
            RUN => opened.as_ref().ok_or_else(|| "no kernel is open".to_owned()).and_then(|o| run(o, &body)),
            kind => Err(format!("message {kind} is not known")),
        };
        match answer {
            Ok(Ok(output)) => wire::send(&mut parent, DONE, &[&output])?,
            Ok(Err(errno)) => wire::send(&mut parent, ERRNO, &[&errno.to_le_bytes()])?,
            Err(sentence) => wire::send(&mut parent, FAILED, &[sentence.as_bytes()])?,
        }
    }
}

fn open(library: &Path, body: &[u8]) -> Result<Opened, String> {
    use std::os::unix::ffi::OsStrExt;
    let wrong = || "a malformed message".to_owned();
    let (index, names) = body.split_first_chunk::<4>().ok_or_else(wrong)?;
    let cut = names.iter().position(|b| *b == 0).ok_or_else(wrong)?;
    let name = std::str::from_utf8(&names[..cut]).map_err(|_| wrong())?;
    let image = Path::new(std::ffi::OsStr::from_bytes(&names[cut + 1..]));
    Opened::new(library, u32::from_le_bytes(*index), image, name)
}

fn run(opened: &Opened, body: &[u8]) -> Result<Result<Vec<u8>, u32>, String> {
    let wrong = || "a malformed message".to_owned();
    let (room, rest) = body.split_first_chunk::<8>().ok_or_else(wrong)?;
    let (count, rest) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
    let room = usize::try_from(u64::from_le_bytes(*room)).ok().filter(|r| *r <= wire::BODY_MAX).ok_or_else(wrong)?;
    let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(4).ok_or_else(wrong)?;
    let (params, input) = rest.split_at_checked(bytes).ok_or_else(wrong)?;
    opened.run(params, input, room)
}
