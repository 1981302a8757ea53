//! How much may be logged of what clients do: nothing that one repeats can fill a disk, or bury what others are told.

use std::time::{Duration, Instant};

use weldfs_locks::Mutex;

/// Lines in one window, unless said otherwise.
const LINES_MAX: u32 = 8;
/// How long a window lasts.
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    lines: u32,
    omitted: u64,
}

/// Lets a few lines through and counts the others. Thread-safe.
#[derive(Debug, Default)]
pub struct LogRate {
    window: Mutex<Window>,
    /// Lines in a window beyond [`LINES_MAX`].
    more: u32,
}

impl LogRate {
    /// Of so many lines in ten seconds.
    pub(crate) fn of(lines: u32) -> LogRate {
        LogRate { window: Mutex::default(), more: lines.saturating_sub(LINES_MAX) }
    }

    /// Whether a line may be logged now. Says first how many were left out, where that is over.
    pub fn permits(&self) -> bool {
        let (permitted, omitted) = self.window.lock().count(Instant::now(), LINES_MAX + self.more);
        if omitted > 0 {
            tracing::warn!("{omitted} lines such as the next one were left out");
        }
        permitted
    }
}

impl Window {
    fn count(&mut self, now: Instant, most: u32) -> (bool, u64) {
        let mut omitted = 0;
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            omitted = self.omitted;
            *self = Window { since: Some(now), ..Window::default() };
        }
        self.lines = self.lines.saturating_add(1);
        let permitted = self.lines <= most;
        self.omitted += u64::from(!permitted);
        (permitted, omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_a_few_lines_and_the_next_one_says_how_many_it_had_not() {
        let (mut window, start) = (Window::default(), Instant::now());
        let few = (0..1000).filter(|_| window.count(start, LINES_MAX) == (true, 0)).count();
        assert_eq!(few as u32, LINES_MAX);
        assert_eq!(window.count(start + WINDOW, LINES_MAX), (true, 1000 - u64::from(LINES_MAX)));
        assert_eq!(window.count(start + WINDOW, LINES_MAX), (true, 0));
    }
}
