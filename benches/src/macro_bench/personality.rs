//! What the four servers do, after Filebench's personalities varmail, fileserver, webserver and webproxy (the workload
//! files of the Filebench 1.5 distribution, github.com/filebench/filebench/tree/master/workloads; described in Tarasov,
//! Zadok, Shepler: "Filebench: a flexible framework for file system benchmarking", ;login: 41(1), 2016). Taken from
//! there: the order of operations, mean sizes with their gamma distribution (shape 1.5), mean append of 16 KiB as a
//! uniform length below it, fsync points, width of directories, part of the files that exist at first. Ours: the number
//! of files, so that the data set has 1 GiB; files stay within 1 MiB; each thread picks among files of its own, so that
//! all systems see the same operations whatever their speed.

/// A sequence of operations on one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sequence {
    /// deletefile.
    Delete,
    /// createfile, appendfilerand, (fsyncfile,) closefile.
    CreateAppend {
        /// With fsyncfile.
        sync: bool,
    },
    /// createfile, writewholefile, closefile.
    CreateWhole,
    /// openfile, appendfilerand, closefile.
    OpenAppend,
    /// openfile, readwholefile, appendfilerand, fsyncfile, closefile.
    ReadAppendSync,
    /// openfile, readwholefile, closefile.
    ReadWhole,
    /// statfile.
    Stat,
    /// appendfilerand to the log that all threads share.
    Log,
}

use Sequence::*;

impl Sequence {
    /// Filebench's operations in it.
    pub fn operations(self) -> u64 {
        match self {
            Delete | Stat | Log => 1,
            CreateWhole | OpenAppend | ReadWhole | CreateAppend { sync: false } => 3,
            CreateAppend { sync: true } => 4,
            ReadAppendSync => 5,
        }
    }

    /// Whether it becomes one fused command.
    pub fn fused(self) -> bool {
        self.operations() > 1
    }

    /// The fused command, or the single one.
    pub fn command(self) -> &'static str {
        match self {
            Delete => "unlink",
            Stat => "stat",
            Log => "append",
            CreateWhole | CreateAppend { .. } | OpenAppend => "open_write_close",
            ReadAppendSync => "open_read_write_close",
            ReadWhole => "open_read_close",
        }
    }
}

/// A server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Personality {
    /// varmail.
    MailServer,
    /// fileserver.
    FileServer,
    /// webserver.
    WebServer,
    /// webproxy.
    WebProxy,
}

use Personality::*;

impl Personality {
    /// All.
    pub const ALL: [Personality; 4] = [MailServer, FileServer, WebServer, WebProxy];

    /// As in JSON and `--only`.
    pub fn name(self) -> &'static str {
        match self {
            MailServer => "mail-server",
            FileServer => "file-server",
            WebServer => "web-server",
            WebProxy => "web-proxy",
        }
    }

    /// One turn of a thread.
    pub fn turn(self) -> &'static [Sequence] {
        const R: Sequence = ReadWhole;
        match self {
            MailServer => &[Delete, CreateAppend { sync: true }, ReadAppendSync, R],
            FileServer => &[CreateWhole, OpenAppend, R, Delete, Stat],
            WebServer => &[R, R, R, R, R, R, R, R, R, R, Log],
            WebProxy => &[Delete, CreateAppend { sync: false }, R, R, R, R, R],
        }
    }

    /// Mean bytes of a file that exists at first or is written whole.
    pub(crate) fn mean_bytes(self) -> f64 {
        if self == FileServer { 131_072.0 } else { 16_384.0 }
    }

    /// Files, existing or not; those that exist at first hold 1 GiB.
    pub fn files(self) -> u64 {
        match self {
            FileServer => 10_800,
            WebServer => 68_000,
            MailServer | WebProxy => 86_000,
        }
    }

    /// Percent of the files that exist at first.
    pub(crate) fn exist_percent(self) -> u64 {
        if self == WebServer { 100 } else { 80 }
    }

    /// Files per directory.
    pub fn width(self) -> u64 {
        if matches!(self, FileServer | WebServer) { 20 } else { 1_000_000 }
    }

    /// Whether it syncs: then it needs a place that keeps something.
    pub(crate) fn syncs(self) -> bool {
        self.turn().iter().any(|s| matches!(s, CreateAppend { sync: true } | ReadAppendSync))
    }

    /// Which part of its operations goes in fused commands.
    pub(crate) fn fused_share(self) -> f64 {
        let sum = |only_fused: bool| {
            let counted = self.turn().iter().filter(|s| !only_fused || s.fused());
            counted.map(|s| s.operations()).sum::<u64>() as f64
        };
        sum(true) / sum(false)
    }

    /// The fused commands that it uses, and how often in a turn.
    pub(crate) fn fused_commands(self) -> String {
        let mut all: Vec<(&str, u32)> = Vec::new();
        for s in self.turn().iter().filter(|s| s.fused()) {
            match all.iter_mut().find(|(name, _)| *name == s.command()) {
                Some((_, n)) => *n += 1,
                None => all.push((s.command(), 1)),
            }
        }
        all.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_have_as_many_operations_as_the_published_ones() {
        let of = |p: Personality| p.turn().iter().map(|s| s.operations()).sum::<u64>();
        assert_eq!(Personality::ALL.map(of), [13, 11, 31, 19]);
        assert_eq!((MailServer.fused_share() * 13.0).round(), 12.0);
        assert_eq!(MailServer.fused_commands(), "1 open_write_close, 1 open_read_write_close, 1 open_read_close");
    }

    #[test]
    fn what_exists_at_first_holds_a_gibibyte() {
        for p in Personality::ALL {
            let bytes = p.files() as f64 * p.exist_percent() as f64 / 100.0 * p.mean_bytes();
            assert!(bytes > 1.02 * f64::from(1 << 30), "{}: {bytes}", p.name());
        }
    }
}
