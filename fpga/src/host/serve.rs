//! What a kernel's process does: it confines itself, loads the shared object, and answers requests until the card
//! closes the socket.

use super::launch::{DRAM, LIBRARY, STALL, Stall, WAVE};
use super::library::Library;
use super::memory::Shared;
use super::sandbox;
use super::wire::{BUFFER_BYTES, BUFFERS, Code, Reply, Request, Spin, input_at};
use crate::manifest::PARAMS_MAX;
use crate::xrt;
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A reply is sent at least so often while the kernel makes progress, so that a slow one is not taken for one that
/// hangs.
const REPORT: Duration = Duration::from_millis(20);
/// Room that any kernel can make something in, bytes.
const ROOM: usize = 4096;

/// Runs a kernel: the whole life of its process. Its standard input is the socket to the card, its standard output
/// the memory that both share; the environment says which shared object. See [`super::Launch`], which starts it.
/// Where the environment names XRT's library instead, this process drives a card with it ([`crate::xrt`]).
/// Returns the exit code: 0, 1 where the shared object cannot be used, 2 where the process was not started by a card.
pub fn serve() -> u8 {
    if let Some(library) = std::env::var_os(xrt::XRT) {
        return if xrt::serve(Path::new(&library)).is_ok() { 0 } else { 2 };
    }
    let (socket, shared) = match take_over() {
        Ok(both) => both,
        Err(_) => return 2,
    };
    let answer = |reply: &Reply| rustix::net::send(&socket, &reply.encode(), SendFlags::NOSIGNAL).is_ok();
    let mut library = match load(socket.as_fd()) {
        Ok(library) => library,
        Err(reply) => {
            answer(&reply);
            return 1;
        }
    };
    let mut going = answer(&Reply::of(Code::Good, ""));
    // Whether the last step left nothing of its part.
    let mut complete = true;
    // Within a packet the next request is about to come.
    let mut spin = None;
    while going {
        let mut bytes = [0; 64];
        let flags = if spin.is_some() { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let request = match rustix::net::recv(&socket, &mut bytes[..], flags) {
            Ok((n, _)) if n > 0 => Request::decode(&bytes[..n]),
            Err(rustix::io::Errno::AGAIN) => {
                spin = spin.and_then(|mut spin: Spin| spin.again().then_some(spin));
                continue;
            }
            Err(rustix::io::Errno::INTR) => continue,
            _ => None,
        };
        let Some(request) = request else { break };
        let reply = match request {
            Request::Step { follows: true, .. } if !complete => Reply::of(Code::Skipped, ""),
            request => perform(&mut library, &shared, request).unwrap_or_else(|reply| reply),
        };
        if let Request::Step { len, eop, .. } = request {
            complete = reply.code == Code::Good && reply.taken == u64::from(len) && reply.done == eop;
        }
        spin = (matches!(request, Request::Step { .. }) && !reply.done).then(Spin::default);
        going = answer(&reply);
    }
    0
}

/// The socket and the shared memory; every other descriptor is closed.
fn take_over() -> io::Result<(OwnedFd, Shared)> {
    let shared = Shared::map(&io::stdout())?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let socket = rustix::io::dup(io::stdin())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    drop(null);
    // The socket becomes descriptor 3, wherever it was.
    let last = rustix::io::fcntl_dupfd_cloexec(&socket, 3)?;
    drop(socket);
    let at = std::os::fd::AsRawFd::as_raw_fd(&last);
    sandbox::close_from(u32::try_from(at + 1).map_err(io::Error::other)?)?;
    Ok((last, shared))
}

fn load(socket: BorrowedFd<'_>) -> Result<Library, Reply> {
    let variable = |name: &str| std::env::var_os(name);
    let library = PathBuf::from(variable(LIBRARY).unwrap_or_default());
    let wave = variable(WAVE).map(PathBuf::from);
    let dram = variable(DRAM).and_then(|v| v.to_str()?.parse().ok()).unwrap_or(0);
    let stall = variable(STALL).and_then(|v| parse_stall(v.to_str()?));
    let confined = |result: io::Result<()>| result.map_err(|e| Reply::of(Code::Sandbox, e.to_string()));
    confined(sandbox::bound(dram, wave.is_some()))?;
    if wave.is_none() {
        confined(sandbox::isolate())?;
    }
    confined(sandbox::confine_loading(wave.is_some()))?;
    let mut library = Library::open(&library)?;
    if wave.is_none() {
        confined(sandbox::close_but(socket))?;
        confined(sandbox::confine_running())?;
    }
    library.make()?;
    if dram > 0 {
        library.give(dram)?;
    }
    if let Some(wave) = wave {
        library.wave(&wave)?;
    }
    if let Some(stall) = stall {
        library.stall(&stall)?;
    }
    Ok(library)
}

fn parse_stall(text: &str) -> Option<Stall> {
    let mut numbers = text.split(',').map(|n| n.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let (seed, in_permille, out_permille) = (next()?, next()?, next()?);
    Some(Stall { seed, in_permille: u32::try_from(in_permille).ok()?, out_permille: u32::try_from(out_permille).ok()? })
}

fn perform(library: &mut Library, shared: &Shared, request: Request) -> Result<Reply, Reply> {
    match request {
        Request::Reset { count } => {
            let count = count.min(PARAMS_MAX) as usize;
            let mut bytes = vec![0; count * 4];
            shared.get(input_at(0), &mut bytes);
            let word = |b: &[u8]| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
            let params: Vec<u32> = bytes.chunks_exact(4).map(word).collect();
            library.reset(&params)?;
            Ok(Reply::of(Code::Good, ""))
        }
        Request::Step { buffer, from, len, eop, .. } => {
            let (buffer, from, len) = (buffer as usize, from as usize, len as usize);
            if buffer >= BUFFERS || from > BUFFER_BYTES || len > BUFFER_BYTES - from {
                return Err(Reply::of(Code::Lost, "a request outside of the buffers"));
            }
            compute(library, shared, buffer, from, len, eop)
        }
        Request::Peek { port } => Ok(Reply { value: library.peek(port)?, ..Reply::of(Code::Good, "") }),
    }
}

/// Steps until the input is used up, the output is full, or it is time to report.
fn compute(
    library: &mut Library,
    shared: &Shared,
    buffer: usize,
    from: usize,
    len: usize,
    eop: bool,
) -> Result<Reply, Reply> {
    let (start, mut total) = (Instant::now(), Reply::of(Code::Good, ""));
    loop {
        let (taken, made) = (total.taken as usize, total.made as usize);
        let step = library.step(shared, buffer, from + taken, len - taken, eop, made)?;
        let still = step.taken == 0 && step.made == 0 && !step.done;
        let possible = step.taken <= (len - taken) as u64 && step.made <= (BUFFER_BYTES - made) as u64;
        total.taken = total.taken.saturating_add(step.taken);
        total.made = total.made.saturating_add(step.made);
        total.cycles = total.cycles.saturating_add(step.cycles);
        total.done = step.done;
        // What cannot be is the card's to judge.
        let used = total.taken >= len as u64 && !eop;
        let full = BUFFER_BYTES.saturating_sub(total.made as usize) < ROOM;
        if step.done || !possible || still || used || full || start.elapsed() >= REPORT {
            return Ok(total);
        }
    }
}
