//! A process that this one has started. Whoever drops it waits for nothing.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A running process. Dropping it kills it; a thread of its own waits for its end, which may take long: memory is given
/// back, a debugger looks on.
#[derive(Debug)]
pub struct Process(Option<Child>);

impl Process {
    pub fn new(child: Child) -> Process {
        Process(Some(child))
    }

    /// Its number; 0 for one that has been waited for.
    pub fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Has it end.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
        }
    }

    /// How it ended, if that is seen within a time.
    pub fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let (until, mut pause) = (Instant::now() + within, Duration::from_micros(100));
        loop {
            match self.0.as_mut()?.try_wait() {
                Ok(Some(status)) => {
                    self.0 = None;
                    return Some(status);
                }
                Ok(None) if Instant::now() < until => std::thread::sleep(pause),
                _ => return None,
            }
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        let _ = child.kill();
        if matches!(child.try_wait(), Ok(None)) {
            reap(child);
        }
    }
}

/// How often the thread looks at those that have not ended.
const LOOK: Duration = Duration::from_millis(20);

/// Hands a process that was killed to the thread that waits for such.
fn reap(child: Child) {
    static REAPER: OnceLock<Option<Sender<Child>>> = OnceLock::new();
    let start = || -> io::Result<Sender<Child>> {
        let (to, from) = channel::<Child>();
        std::thread::Builder::new().name("weldfs-reaper".into()).spawn(move || {
            let mut all: Vec<Child> = Vec::new();
            loop {
                let next = if all.is_empty() {
                    from.recv().map_err(|_| RecvTimeoutError::Disconnected)
                } else {
                    from.recv_timeout(LOOK)
                };
                match next {
                    Ok(child) => all.push(child),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                all.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            }
        })?;
        Ok(to)
    };
    let unsent = match REAPER.get_or_init(|| start().ok()) {
        Some(reaper) => reaper.send(child).err().map(|e| e.0),
        None => Some(child),
    };
    // No thread can be had: better waited for here than never.
    if let Some(mut child) = unsent {
        let _ = child.wait();
    }
}
