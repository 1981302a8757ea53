//! What is said on the command line, and behind `-o`.

use super::Args;
use crate::failure::Failure;
use std::time::Duration;

/// What mount(8) and fstab(5) mean for themselves.
const OF_MOUNT: [&str; 12] = [
    "defaults", "auto", "noauto", "user", "users", "owner", "group", "nofail", "_netdev", "nouser", "noatime",
    "relatime",
];
/// The longest that the kernel may be told to keep something, seconds.
const KEEP_MAX: f64 = 86_400.0;
/// Threads, at most.
const THREADS_MAX: usize = 256;

/// All of it together.
#[derive(Debug, Default)]
pub struct Options {
    pub read_only: bool,
    pub allow_other: bool,
    pub exclusive: bool,
    pub suid: bool,
    pub no_exec: bool,
    /// What is mounted there already is to be read-only, or no more.
    pub remount: bool,
    /// For how long names and attributes are kept, if it was said.
    pub keep: Option<Duration>,
    /// Threads, if it was said.
    pub threads: Option<usize>,
}

impl Options {
    pub fn of(args: &Args) -> Result<Options, Failure> {
        let mut options = Options {
            read_only: args.read_only,
            allow_other: args.allow_other,
            exclusive: args.exclusive,
            ..Options::default()
        };
        let words = || args.options.iter().flat_map(|words| words.split(',')).filter(|word| !word.is_empty());
        options.remount = words().any(|word| word == "remount");
        words().try_for_each(|word| options.take(word))?;
        Ok(options)
    }

    fn take(&mut self, word: &str) -> Result<(), Failure> {
        match word.split_once('=').unwrap_or((word, "")) {
            ("ro", "") => self.read_only = true,
            ("rw", "") => self.read_only = false,
            ("allow_other", "") => self.allow_other = true,
            ("exclusive", "") => self.exclusive = true,
            ("remount", "") => {}
            ("suid", "") => self.suid = true,
            ("nosuid", "") => self.suid = false,
            ("exec", "") => self.no_exec = false,
            ("noexec", "") => self.no_exec = true,
            // There are no device nodes to be had.
            ("nodev", "") => {}
            // What the kernel shows of a mount, and mount(8) gives back at a remount.
            ("user_id" | "group_id", _) | ("default_permissions", "") if self.remount => {}
            ("keep", seconds) => self.keep = Some(keep(seconds)?),
            ("threads", number) => self.threads = Some(threads(number)?),
            _ if OF_MOUNT.contains(&word) || word.starts_with("x-") => {}
            _ => return Err(Failure::usage(format!("-o {word}: no such option (see weldfs mount --help)"))),
        }
        Ok(())
    }
}

fn keep(text: &str) -> Result<Duration, Failure> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=KEEP_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(Failure::usage(format!("-o keep={text}: not a number of seconds from 0 to {KEEP_MAX}"))),
    }
}

fn threads(text: &str) -> Result<usize, Failure> {
    match text.parse() {
        Ok(number) if (1..=THREADS_MAX).contains(&number) => Ok(number),
        _ => Err(Failure::usage(format!("-o threads={text}: not a number from 1 to {THREADS_MAX}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(words: &str) -> Result<Options, Failure> {
        let mut options = Options::default();
        words.split(',').try_for_each(|word| options.take(word)).map(|()| options)
    }

    #[test]
    fn words_of_fstab() {
        let options = take("ro,defaults,nofail,x-systemd.automount,keep=1.5,threads=3,allow_other,suid").unwrap();
        assert!(options.read_only && options.allow_other && options.suid && !options.exclusive);
        assert_eq!((options.keep, options.threads), (Some(Duration::from_millis(1500)), Some(3)));
        assert!(!take("ro,rw").unwrap().read_only, "the last one counts");
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for word in ["what", "keep=-1", "keep=", "threads=0", "threads=x", "ro=1"] {
            assert!(take(word).is_err(), "{word}");
        }
    }
}
