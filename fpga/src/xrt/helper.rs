//! The helper: answers the messages of `wire` on its standard input, a socket, until that ends.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::library::{Opened, Refused};
use super::wire::{self, DONE, ERRNO, FAILED, NO_CARD, OPEN, RESET, RUN};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

/// What the kernel program does where the environment names XRT's library. It dies with its parent, and it may die of
/// the library; it leaves no core behind, and gains no privileges.
///
/// # Errors
/// Standard input is no socket of a parent's, or breaks.
pub fn serve(library: &Path) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let mut parent = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (mut opened, mut params) = (None, Vec::new());
    loop {
        let (kind, body) = match wire::receive(&mut parent) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            received => received?,
        };
        let answer = match kind {
            OPEN => {
                // One at a time: what was open is closed first.
                opened = None;
                open(library, &body).map(|o| opened = Some(o)).map(|()| Vec::new())
            }
            RESET => {
                params = body;
                Ok(Vec::new())
            }
            RUN => match &mut opened {
                Some(opened) => run(opened, &params, &body),
                None => Err(Refused::Sentence("no kernel is open".to_owned())),
            },
            kind => Err(Refused::Sentence(format!("message {kind} is not known"))),
        };
        match answer {
            Ok(output) => wire::send(&mut parent, DONE, &[&output])?,
            Err(Refused::Errno(errno)) => wire::send(&mut parent, ERRNO, &[&errno.to_le_bytes()])?,
            Err(Refused::NoCard(sentence)) => wire::send(&mut parent, NO_CARD, &[sentence.as_bytes()])?,
            Err(Refused::Sentence(sentence)) => wire::send(&mut parent, FAILED, &[sentence.as_bytes()])?,
        }
    }
}

fn malformed() -> Refused {
    Refused::Sentence("a malformed message".to_owned())
}

fn open(library: &Path, body: &[u8]) -> Result<Opened, Refused> {
    use std::os::unix::ffi::OsStrExt;
    let (index, names) = body.split_first_chunk::<4>().ok_or_else(malformed)?;
    let cut = names.iter().position(|b| *b == 0).ok_or_else(malformed)?;
    let name = std::str::from_utf8(&names[..cut]).map_err(|_| malformed())?;
    let image = Path::new(std::ffi::OsStr::from_bytes(&names[cut + 1..]));
    Opened::new(library, u32::from_le_bytes(*index), image, name)
}

fn run(opened: &mut Opened, params: &[u8], body: &[u8]) -> Result<Vec<u8>, Refused> {
    let (room, input) = body.split_first_chunk::<8>().ok_or_else(malformed)?;
    let room = usize::try_from(u64::from_le_bytes(*room)).ok().filter(|r| *r <= wire::BODY_MAX);
    opened.run(params, input, room.ok_or_else(malformed)?)
}
