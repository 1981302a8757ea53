//! `weldfs truncate`: sets the size of files in an image.

use crate::device;
use crate::failure::{Doing, Outcome};
use crate::output::{self, each, exit_code};
use crate::place::{Place, one_image};
use crate::streams;
use std::io::{self, ErrorKind};
use std::str::FromStr;
use weldfs::{Client, OpenOptions};

/// Arguments of `weldfs truncate`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "SIZE is bytes, or with K, M, G, T (powers of 1024); with + or - in front by how much the size\n\
changes, < at most, > at least, / down and % up to a multiple. What is added reads as zeros and takes\nno space."
)]
pub struct Args {
    /// The size to have
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Change,
    /// Make no file that is not there
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Files
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    To(u64),
    More(u64),
    Less(u64),
    AtMost(u64),
    AtLeast(u64),
    Down(u64),
    Up(u64),
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        let make = match text.chars().next() {
            Some('+') => Change::More,
            Some('-') => Change::Less,
            Some('<') => Change::AtMost,
            Some('>') => Change::AtLeast,
            Some('/') => Change::Down,
            Some('%') => Change::Up,
            _ => return output::parse_bytes(text).map(Change::To),
        };
        match (text.chars().next(), output::parse_bytes(&text[1..])?) {
            (Some('/' | '%'), 0) => Err("0 has no multiples".to_owned()),
            (_, bytes) => Ok(make(bytes)),
        }
    }
}

impl Change {
    /// The new size of a file of `size` bytes; `None` when there is no such number.
    fn apply(self, size: u64) -> Option<u64> {
        match self {
            Change::To(n) => Some(n),
            Change::More(n) => size.checked_add(n),
            Change::Less(n) => Some(size.saturating_sub(n)),
            Change::AtMost(n) => Some(size.min(n)),
            Change::AtLeast(n) => Some(size.max(n)),
            Change::Down(n) => Some(size / n * n),
            Change::Up(n) => size.checked_next_multiple_of(n),
        }
    }
}

/// Changes sizes; they are durable on return.
pub fn run(args: &Args) -> Outcome {
    let device = device::open(&one_image(&args.places)?, device::Want::Write)?;
    let client = device.client();
    let failed = each(&args.places, |place| {
        let told = |e| streams::why(client, &place.path, &e).map_or(e, io::Error::other);
        set(client, args, place).map_err(told).doing("set the size of", place.to_string())
    })?;
    device.finish()?;
    Ok(exit_code(failed))
}

fn set(client: &Client, args: &Args, place: &Place) -> std::io::Result<()> {
    let options = OpenOptions::new().write(true).create(!args.no_create);
    let file = match options.open(client, &place.path) {
        Err(e) if args.no_create && e.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let size = args.size.apply(file.metadata()?.len()).ok_or(ErrorKind::FileTooLarge)?;
    file.set_len(size)?;
    file.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_set_and_changed_as_truncate_does() {
        let of = |text: &str, size| text.parse::<Change>().map(|change| change.apply(size));
        assert_eq!(of("1K", 5), Ok(Some(1024)));
        assert_eq!(of("+5", 5), Ok(Some(10)));
        assert_eq!(of("-9", 5), Ok(Some(0)));
        assert_eq!((of("<3", 5), of("<7", 5)), (Ok(Some(3)), Ok(Some(5))));
        assert_eq!((of(">3", 5), of(">7", 5)), (Ok(Some(5)), Ok(Some(7))));
        assert_eq!((of("/4", 5), of("%4", 5)), (Ok(Some(4)), Ok(Some(8))));
        assert_eq!(of("+1", u64::MAX), Ok(None));
        assert!(of("%0", 5).is_err() && of("", 5).is_err() && of("+x", 5).is_err());
    }
}
