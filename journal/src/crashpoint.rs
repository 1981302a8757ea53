//! Named crash points: places where a crash test lets the own process die as if it were killed there.
//! Builds with debug assertions (every test's) have them; in a release build [`crashpoint`] is nothing.

/// Dies here (SIGKILL) if the environment says `WELDFS_CRASH_POINT=name[:n]` with this name and this is the n-th
/// passing (the first without a number).
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn crashpoint(_name: &str) {}

#[cfg(debug_assertions)]
mod live {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Chosen {
        name: String,
        left: AtomicU64,
    }

    static CHOSEN: LazyLock<Option<Chosen>> = LazyLock::new(|| {
        let text = std::env::var("WELDFS_CRASH_POINT").ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some(Chosen { name: name.to_owned(), left: AtomicU64::new(count.parse().ok()?) })
    });

    /// Dies here (SIGKILL) if the environment says `WELDFS_CRASH_POINT=name[:n]` with this name and this is the n-th
    /// passing (the first without a number).
    pub fn crashpoint(name: &str) {
        let Some(chosen) = CHOSEN.as_ref() else { return };
        if chosen.name == name && chosen.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            // The signal is on its way: nothing of this thread may happen any more.
            loop {
                std::thread::park();
            }
        }
    }
}

#[cfg(debug_assertions)]
pub use live::crashpoint;
