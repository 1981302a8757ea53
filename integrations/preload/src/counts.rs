//! What became of a process's calls, function by function: `WELDFS_REPORT=1`.
//!
//! A hook is counted when it returns, under its own name: as refused, else as promoted, else as accelerated if the
//! device served it; what went to libc alone is not counted. Hooks that a hook calls are part of it. Without the
//! variable all of this is one look at a flag. Nothing here allocates or takes a lock.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether calls are counted.
static COUNTING: AtomicBool = AtomicBool::new(false);
/// Functions that can be counted; more than this library has.
const FUNCTIONS: usize = 512;
/// Counters that are not zero, or were not.
static LISTED: [OnceLock<&'static Counter>; FUNCTIONS] = [const { OnceLock::new() }; FUNCTIONS];

/// Calls of one function.
pub struct Counter {
    name: &'static str,
    accelerated: AtomicU64,
    promoted: AtomicU64,
    refused: AtomicU64,
    listed: AtomicBool,
}

impl Counter {
    /// For the function `name`.
    pub const fn new(name: &'static str) -> Counter {
        Counter {
            name,
            accelerated: AtomicU64::new(0),
            promoted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            listed: AtomicBool::new(false),
        }
    }

    fn list(&'static self) {
        if self.listed.swap(true, Ordering::Relaxed) {
            return;
        }
        // The first place that nothing else has taken.
        let _ = LISTED.iter().find(|place| place.set(self).is_ok());
    }
}

/// What is known of the call that this thread is in.
#[derive(Clone, Copy)]
struct Call {
    counter: Option<&'static Counter>,
    served: bool,
    promoted: bool,
    refused: bool,
}

const NO_CALL: Call = Call { counter: None, served: false, promoted: false, refused: false };

thread_local! {
    /// Without a destructor: a program's thread ends without a call of this library.
    static CALL: Cell<Call> = const { Cell::new(NO_CALL) };
}

/// A hook that runs; it is counted when this is dropped.
pub struct Running(bool);

/// Begins a call of a hook. Inside another one it changes nothing.
#[inline]
pub fn enter(counter: &'static Counter) -> Running {
    if COUNTING.load(Ordering::Relaxed) { begin(counter) } else { Running(false) }
}

#[cold]
fn begin(counter: &'static Counter) -> Running {
    if CALL.get().counter.is_some() {
        return Running(false);
    }
    CALL.set(Call { counter: Some(counter), ..NO_CALL });
    Running(true)
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            finish();
        }
    }
}

/// Counts the call that this thread is in, and forgets it.
#[cold]
fn finish() {
    let call = CALL.replace(NO_CALL);
    let Some(counter) = call.counter else { return };
    let count = match call {
        Call { refused: true, .. } => &counter.refused,
        Call { promoted: true, .. } => &counter.promoted,
        Call { served: true, .. } => &counter.accelerated,
        _ => return,
    };
    count.fetch_add(1, Ordering::Relaxed);
    counter.list();
}

fn note(change: impl FnOnce(&mut Call)) {
    if COUNTING.load(Ordering::Relaxed) {
        let mut call = CALL.get();
        change(&mut call);
        CALL.set(call);
    }
}

/// The device serves the call that this thread is in.
#[inline]
pub fn served() {
    note(|call| call.served = true);
}

/// It did not after all: the name led to the host.
pub fn left() {
    note(|call| call.served = false);
}

/// The call that this thread is in is refused.
pub fn refused() {
    note(|call| call.refused = true);
}

/// The call that this thread is in is served by the kernel's own file of a mount.
pub fn promoted() {
    note(|call| call.promoted = true);
}

/// Starts counting; the settings ask for it.
pub fn start() {
    COUNTING.store(true, Ordering::Relaxed);
}

/// Whether calls are counted.
pub fn counting() -> bool {
    COUNTING.load(Ordering::Relaxed)
}

fn each(visit: impl FnMut(&'static Counter)) {
    LISTED.iter().map_while(|place| place.get().copied()).for_each(visit);
}

/// A forked child counts its own calls.
pub fn forget() {
    CALL.set(NO_CALL);
    crate::patterns::take_counts();
    crate::patterns::take_kept();
    weldfs::take_merged();
    each(|counter| {
        for count in [&counter.accelerated, &counter.promoted, &counter.refused] {
            count.store(0, Ordering::Relaxed);
        }
    });
}

/// Rows of the table at most; more functions than that are summed up in the last row.
const ROWS: usize = 96;

/// One function's calls: name, accelerated, promoted, refused.
type Row = (&'static str, [u64; 3]);

/// Takes all counts, the call that this thread is in among them; the busiest function first.
fn take(rows: &mut [Row; ROWS]) -> usize {
    finish();
    let mut used = 0;
    each(|counter| {
        let counts = [&counter.accelerated, &counter.promoted, &counter.refused].map(|c| c.swap(0, Ordering::Relaxed));
        if counts == [0; 3] {
            return;
        }
        if used < ROWS {
            rows[used] = (counter.name, counts);
            used += 1;
        } else {
            let rest = &mut rows[ROWS - 1];
            rest.0 = "(others)";
            rest.1.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
    });
    rows[..used].sort_unstable_by(|a, b| b.1.iter().sum::<u64>().cmp(&a.1.iter().sum()).then(a.0.cmp(b.0)));
    used
}

/// Text in place; what does not fit is left out.
struct Page {
    bytes: [u8; 8192],
    used: usize,
}

impl Page {
    fn put(&mut self, text: &[u8]) {
        let n = text.len().min(self.bytes.len() - self.used);
        self.bytes[self.used..self.used + n].copy_from_slice(&text[..n]);
        self.used += n;
    }

    fn pad(&mut self, from: usize, width: usize) {
        while self.used < (from + width).min(self.bytes.len()) {
            self.put(b" ");
        }
    }

    /// A number, to the right in a column.
    fn number(&mut self, n: u64, width: usize) {
        let mut digits = [0u8; 20];
        let (mut at, mut left) = (digits.len(), n);
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        let len = digits.len() - at;
        self.pad(self.used, width.saturating_sub(len));
        self.put(&digits[at..]);
    }

    /// A line for a count that is none of one function's, if it is not 0.
    fn line(&mut self, what: &[&[u8]], n: u64) {
        if n == 0 {
            return;
        }
        let start = self.used;
        self.put(b"weldfs:   ");
        what.iter().for_each(|part| self.put(part));
        self.pad(start, 51);
        self.number(n, 11);
        self.put(b"\n");
    }
}

/// Gives the table of all counts to `print`, as one text, and starts again from zero. Nothing is given where no call
/// was counted.
pub fn table(program: &[u8], pid: u64, print: impl FnOnce(&[u8])) {
    if !counting() {
        return;
    }
    let mut rows: [Row; ROWS] = [("", [0; 3]); ROWS];
    let used = take(&mut rows);
    if used == 0 {
        return;
    }
    let mut page = Page { bytes: [0; 8192], used: 0 };
    let start = page.used;
    page.put(b"weldfs: ");
    page.put(&program[..program.len().min(40)]);
    page.put(b" [");
    page.number(pid, 0);
    page.put(b"]");
    page.pad(start, 32);
    page.put(b" accelerated   promoted    refused\n");
    for (name, counts) in &rows[..used] {
        let start = page.used;
        page.put(b"weldfs:   ");
        page.put(name.as_bytes());
        page.pad(start, 32);
        page.number(counts[0], 12);
        page.number(counts[1], 11);
        page.number(counts[2], 11);
        page.put(b"\n");
    }
    for (name, n) in crate::patterns::take_counts() {
        page.line(&[b"of these, not waited for: ", name], n);
    }
    let [renames, transactions] = crate::patterns::take_kept();
    page.line(&[b"of those, in one record with others:"], weldfs::take_merged());
    page.line(&[b"renames kept for transactions:"], renames);
    page.line(&[b"transactions that made them:"], transactions);
    print(&page.bytes[..page.used]);
}

#[cfg(test)]
mod tests {
    use super::*;

    static FIRST: Counter = Counter::new("first");
    static SECOND: Counter = Counter::new("second");

    fn text() -> String {
        let mut all = String::new();
        table(b"prog", 7, |page| all = String::from_utf8(page.to_vec()).unwrap());
        all
    }

    /// One test: the counters and the switch are the process's.
    #[test]
    fn a_call_is_counted_once_under_the_outermost_name_as_what_became_of_it() {
        drop(enter(&FIRST));
        assert_eq!(text(), "", "nothing is counted unless it is asked for");
        start();
        {
            let _outer = enter(&FIRST);
            let _inner = enter(&SECOND);
            served();
        }
        drop(enter(&SECOND));
        for (what, counter) in [(refused as fn(), &SECOND), (promoted, &SECOND), (served, &SECOND)] {
            let _call = enter(counter);
            served();
            what();
        }
        {
            let _call = enter(&SECOND);
            served();
            left();
        }
        let said = text();
        let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["weldfs:", "prog", "[7]", "accelerated", "promoted", "refused"]);
        assert_eq!(rows[1], ["weldfs:", "second", "1", "1", "1"]);
        assert_eq!(rows[2], ["weldfs:", "first", "1", "0", "0"]);
        assert_eq!((rows.len(), text()), (3, String::new()), "once");
        let _call = enter(&FIRST);
        served();
        assert!(text().contains("first"), "the call that ends the process is counted");
        {
            let _call = enter(&FIRST);
            served();
        }
        forget();
        assert_eq!(text(), "");
    }
}
