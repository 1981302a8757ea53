//! What a family must hold to, and how it is printed.

use super::ground::Holds;
use super::victim::Suffered;
use std::fmt;
use std::io;

/// One family on one kind of device.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Row {
    pub family: String,
    pub device: String,
    /// Beside an honest neighbour.
    pub fair: Suffered,
    /// Beside the attacker.
    pub suffered: Suffered,
    pub before: Holds,
    /// During the attack.
    pub peak: Holds,
    pub after: Holds,
    /// From the attacker's death until the device held what it had held before, and was idle.
    pub rest_ms: Option<u64>,
    /// From SIGTERM in an attack to the end.
    pub term_ms: Option<u64>,
    pub log_bytes: u64,
    /// What the host took of the processors' time in the worse half of each round, in thousandths; and how many of the
    /// rounds the times are of.
    pub taken: Vec<u64>,
    pub timed: usize,
    pub died: bool,
    /// Something is wrong that is no matter of time.
    pub lied: bool,
    /// What it does not hold to.
    pub broken: Vec<String>,
}

/// A round is calm of whose processors' time the host took at most so many thousandths.
const CALM: u64 = 10;

/// So many calm rounds are judged without the others.
const ENOUGH: usize = 5;

/// What is judged by time.
pub struct Bounds {
    /// Times the victim's p99 beside an honest neighbour; nothing below the floor, in microseconds, counts.
    p99_times: Option<u64>,
    p99_floor_us: u64,
    /// The longest command in any round: medians do not show it.
    max_us: u64,
    attach_us: u64,
    rest_ms: u64,
    term_ms: u64,
    /// What memory may differ by from that before: caches grow with use.
    pub memory_slack_kib: u64,
}

impl Bounds {
    /// On a machine that does nothing else.
    pub const FULL: Bounds = Bounds {
        p99_times: Some(2),
        p99_floor_us: 500,
        max_us: 500_000,
        attach_us: 50_000,
        rest_ms: 5_000,
        term_ms: 5_000,
        memory_slack_kib: 32 << 10,
    };
    /// On one that does: only what is broken takes so long, or keeps so much.
    pub const BUSY: Bounds = Bounds {
        p99_times: None,
        p99_floor_us: 5_000_000,
        max_us: 5_000_000,
        attach_us: 10_000_000,
        rest_ms: 10_000,
        term_ms: 15_000,
        memory_slack_kib: 512 << 10,
    };

    /// Whether what the victim suffers beside an honest neighbour is needed.
    pub fn compares(&self) -> bool {
        self.p99_times.is_some()
    }

    /// Notes what a row does not hold to. Whether the medians of more rounds may say otherwise: nothing else is wrong.
    pub fn judge(&self, row: &mut Row) -> bool {
        let before = row.broken.len();
        let (s, broken) = (&row.suffered, &mut row.broken);
        let mut hold = |right: bool, what: String| {
            if !right {
                broken.push(what);
            }
        };
        hold(s.wrong == 0, format!("{} wrong answers to the victim", s.wrong));
        hold(s.denied == 0, format!("{} commands of the victim denied, the first: {}", s.denied, s.first));
        hold(!row.died, "the device died".into());
        row.lied = s.wrong > 0 || s.denied > 0 || row.died;
        hold(s.commands > 0 && s.attaches > 0, "the victim got nothing done".into());
        let p99_max = self.p99_times.map_or(0, |n| n * row.fair.p99_us).max(self.p99_floor_us);
        hold(s.p99_us <= p99_max, format!("p99 {} us, {} beside an honest neighbour", s.p99_us, row.fair.p99_us));
        hold(s.max_us <= self.max_us, format!("one command in {} us", s.max_us));
        hold(s.attach_p99_us < self.attach_us, format!("attach p99 {} us", s.attach_p99_us));
        hold(
            row.rest_ms.is_some_and(|ms| ms <= self.rest_ms),
            format!("at rest after {:?} ms: {:?}, it was {:?}", row.rest_ms, row.after, row.before),
        );
        hold(row.term_ms.is_none_or(|ms| ms <= self.term_ms), format!("ended {:?} ms after SIGTERM", row.term_ms));
        let late = usize::from(s.p99_us > p99_max) + usize::from(s.attach_p99_us >= self.attach_us);
        before == 0 && late > 0 && row.broken.len() == late
    }
}

/// The line above the rows.
pub fn heading() {
    println!(
        "{:16} {:8} {:>5} {:>6} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7} {:>7} {:>7} {:>6} {:>5}",
        "family",
        "device",
        "wrong",
        "denied",
        "fair p50",
        "fair p99",
        "p50 us",
        "p99 us",
        "max us",
        "attach99",
        "rest ms",
        "term ms",
        "MiB",
        "log",
        "host%"
    );
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fair, s) = (&self.fair, &self.suffered);
        let or = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        write!(
            f,
            "{:16} {:8} {:5} {:6} {:8} {:8} {:8} {:8} {:9} {:9} {:>7} {:>7} {:7} {:6} {:5.1}",
            self.family,
            self.device,
            s.wrong,
            s.denied,
            fair.p50_us,
            fair.p99_us,
            s.p50_us,
            s.p99_us,
            s.max_us,
            s.attach_p99_us,
            or(self.rest_ms),
            or(self.term_ms),
            self.peak.memory_kib >> 10,
            self.log_bytes,
            s.stolen as f64 / 10.0
        )?;
        if self.broken.is_empty() { Ok(()) } else { write!(f, " BAD") }
    }
}

impl Row {
    /// Of all rounds of one family: the medians of its times, what the first alone has, and whatever went wrong in any.
    /// Where a virtual machine's host gives its processors to others, the times are those of the calm rounds, or, if
    /// these are few, of the calmer half: chosen by what the host took, whatever they show.
    pub fn of_rounds(rows: &[Row]) -> Row {
        let first = rows.first().cloned().unwrap_or_default();
        let taken: Vec<u64> = rows.iter().map(Row::stolen).collect();
        let whole = |r: &&Row| r.broken.is_empty();
        let mut stolen: Vec<u64> = rows.iter().filter(whole).map(Row::stolen).collect();
        stolen.sort_unstable();
        let half = stolen.get(stolen.len() / 2).copied().unwrap_or(0).max(CALM);
        let most = if Row::calm(rows) < ENOUGH { half } else { CALM };
        let timed = |r: &&Row| whole(r) && r.stolen() <= most;
        let all = |of: fn(&Row) -> &Suffered| {
            let times: Vec<_> = rows.iter().filter(timed).map(of).collect();
            Suffered::of_rounds(&rows.iter().map(of).collect::<Vec<_>>(), &times)
        };
        Row {
            fair: all(|r| &r.fair),
            suffered: all(|r| &r.suffered),
            peak: rows.iter().map(|r| r.peak).max_by_key(|p| p.memory_kib).unwrap_or_default(),
            log_bytes: rows.iter().map(|r| r.log_bytes).max().unwrap_or(0),
            died: rows.iter().any(|r| r.died),
            timed: rows.iter().filter(timed).count(),
            taken,
            broken: rows.iter().flat_map(|r| r.broken.iter().cloned()).collect(),
            ..first
        }
    }

    /// What the host took of the processors' time in the worse half of a round, in thousandths.
    fn stolen(&self) -> u64 {
        self.fair.stolen.max(self.suffered.stolen)
    }

    /// How many of the rounds are calm, beside the neighbour and beside the attacker.
    pub fn calm(rows: &[Row]) -> usize {
        rows.iter().filter(|r| r.broken.is_empty() && r.stolen() <= CALM).count()
    }

    /// Whether no more rounds change what is said of it.
    pub fn is_decided(&self) -> bool {
        let s = &self.suffered;
        !self.broken.is_empty() || self.died || s.wrong + s.denied > 0 || self.fair.wrong + self.fair.denied > 0
    }

    /// Of a family that is no load: what went wrong, if anything.
    pub fn single(family: &str, done: io::Result<Option<String>>) -> Row {
        let broken = match done {
            Ok(wrong) => wrong.into_iter().collect(),
            Err(e) => vec![e.to_string()],
        };
        Row { family: family.into(), device: "-".into(), broken, ..Row::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Row {
        let fair = Suffered { p99_us: 1_000, ..Suffered::default() };
        let suffered = Suffered { commands: 10, attaches: 2, p99_us: 2_000, attach_p99_us: 900, ..fair.clone() };
        Row { fair, suffered, rest_ms: Some(10), term_ms: Some(20), ..Row::default() }
    }

    fn broken(change: impl Fn(&mut Row)) -> (bool, bool) {
        let mut row = good();
        change(&mut row);
        Bounds::FULL.judge(&mut row);
        (!row.broken.is_empty(), row.lied)
    }

    #[test]
    fn rounds_are_judged_by_their_medians_and_lies_by_their_sum() {
        let round = |fair: u64, p99: u64, wrong: u64, broken: &[&str]| {
            let (mut row, broken) = (good(), broken.iter().map(|b| b.to_string()).collect());
            (row.fair.p99_us, row.suffered.p99_us, row.suffered.wrong, row.broken) = (fair, p99, wrong, broken);
            row
        };
        let judged = |rows: &[Row]| {
            let mut row = Row::of_rounds(rows);
            Bounds::FULL.judge(&mut row);
            (row.fair.p99_us, row.suffered.p99_us, row.broken.len(), row.lied)
        };
        // One round in which the machine did something else.
        let noisy = [round(1_000, 1_900, 0, &[]), round(900, 9_000, 0, &[]), round(1_100, 2_000, 0, &[])];
        assert_eq!(judged(&noisy), (1_000, 2_000, 0, false));
        // The host gave the processors to others in two of five: the times are those of the three others.
        let mut taken = [0, 300, 5, 0, 200].map(|stolen| {
            let mut row = round(1_000, if stolen > 10 { 9_000 } else { 2_000 }, 0, &[]);
            row.suffered.stolen = stolen;
            row
        });
        assert_eq!(judged(&taken), (1_000, 2_000, 0, false));
        // In all of them: it is those in which it took least.
        taken.iter_mut().for_each(|row| row.suffered.stolen += 400);
        assert_eq!(judged(&taken), (1_000, 2_000, 0, false));
        taken[3].suffered.max_us = 500_001;
        assert_eq!(judged(&taken), (1_000, 2_000, 1, false), "the longest command is that of any round");
        // Of many rounds a few that were calm on both sides say more than the calmer half.
        let many: Vec<Row> = (0..20)
            .map(|i| {
                let (fair, p99) = if i % 4 == 0 { (1_000, 2_000) } else { (9_000, 1_500) };
                let mut row = round(fair, p99, 0, &[]);
                (row.fair.stolen, row.suffered.stolen) = ([10, 11, 0, 30][i % 4], [0, 0, 11, 0][i % 4]);
                row
            })
            .collect();
        assert_eq!(Row::calm(&many), 5);
        assert_eq!(judged(&many), (1_000, 2_000, 0, false));
        assert_eq!(judged(&many[1..]), (9_000, 1_500, 0, false), "four are too few");
        let both = Row::of_rounds(&many);
        assert_eq!((both.timed, both.taken[..4].to_vec()), (5, vec![10, 11, 11, 30]), "how many there are is said");
        // A round that failed has no times.
        let mut failed = [round(1_000, 2_000, 0, &[]), round(0, 0, 0, &["it hung"]), round(1_000, 2_000, 0, &[])];
        failed[1].suffered.commands = 0;
        assert_eq!(judged(&failed), (1_000, 2_000, 1, false));
        assert!(failed[1].is_decided() && !failed[0].is_decided());
        let late = [round(1_000, 2_100, 0, &[]), round(9_000, 9_000, 0, &[]), round(900, 900, 0, &[])];
        assert_eq!(judged(&late), (1_000, 2_100, 1, false));
        let lying = [round(1_000, 1_000, 0, &[]), round(1_000, 1_000, 1, &[]), round(1_000, 1_000, 0, &["it hung"])];
        assert_eq!(judged(&lying), (1_000, 1_000, 2, true));
    }

    #[test]
    fn each_bound_is_held_to() {
        assert_eq!(broken(|_| ()), (false, false));
        assert_eq!(broken(|r| r.suffered.wrong = 1), (true, true));
        assert_eq!(broken(|r| r.suffered.denied = 1), (true, true));
        assert_eq!(broken(|r| r.died = true), (true, true));
        assert_eq!(broken(|r| r.suffered.commands = 0), (true, false));
        assert_eq!(broken(|r| r.suffered.p99_us = 2_001), (true, false));
        assert_eq!(broken(|r| r.suffered.attach_p99_us = 50_000), (true, false));
        assert_eq!(broken(|r| r.suffered.max_us = 500_001), (true, false));
        assert_eq!(broken(|r| r.rest_ms = None), (true, false));
        assert_eq!(broken(|r| r.rest_ms = Some(5_001)), (true, false));
        assert_eq!(broken(|r| r.term_ms = Some(5_001)), (true, false));
        // What no tester can tell from a busy machine.
        assert_eq!(broken(|r| (r.fair.p99_us, r.suffered.p99_us) = (100, 499)), (false, false));
    }
}
