//! `IMAGE:/path`: naming a file inside an image on the command line.

use crate::failure::Failure;
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser, ValueParserFactory};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path inside an image (or inside the device that listens at a socket).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The image file, or a device's socket.
    pub image: PathBuf,
    /// The path inside, absolute.
    pub path: PathBuf,
}

/// Either side of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// Inside an image.
    Inside(Place),
    /// In the host's file system.
    Host(PathBuf),
}

/// A whole file system, named by itself or by a path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// The image file, or a device's socket.
    pub image: PathBuf,
    /// The path, if one was given.
    pub path: Option<PathBuf>,
}

/// What can be read like a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readable {
    /// Inside an image.
    Inside(Place),
    /// Standard input: `-`.
    Stdin,
}

impl Place {
    /// The same place with a name added.
    pub fn join(&self, name: impl AsRef<Path>) -> Place {
        Place { image: self.image.clone(), path: self.path.join(name) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.image.display(), self.path.display())
    }
}

/// Splits at the first `:/`; `IMAGE:` alone is the root. Several slashes in front of a path are one.
fn split(text: &OsStr) -> Option<Place> {
    let bytes = text.as_bytes();
    let colon = match bytes.windows(2).position(|pair| pair == b":/") {
        Some(at) => at,
        None if bytes.last() == Some(&b':') => bytes.len() - 1,
        None => return None,
    };
    let (image, path) = (&bytes[..colon], &bytes[colon + 1..]);
    if image.is_empty() {
        return None;
    }
    let name = &path[path.iter().position(|b| *b != b'/').unwrap_or(path.len())..];
    let path = [b"/", name].concat();
    Some(Place { image: OsString::from_vec(image.to_vec()).into(), path: OsString::from_vec(path).into() })
}

impl Place {
    /// What an argument says.
    pub fn of(text: &OsStr) -> Result<Place, String> {
        split(text).ok_or_else(|| {
            let text = text.display();
            format!("'{text}' is not of the form IMAGE:/path (the root of an image is '{text}:/')")
        })
    }
}

impl Whole {
    fn of(text: &OsStr) -> Whole {
        match split(text) {
            Some(Place { image, path }) => Whole { image, path: Some(path) },
            None => Whole { image: text.into(), path: None },
        }
    }
}

impl Readable {
    fn of(text: &OsStr) -> Result<Readable, String> {
        if text == "-" { Ok(Readable::Stdin) } else { Place::of(text).map(Readable::Inside) }
    }
}

impl Side {
    fn of(text: &OsStr) -> Side {
        split(text).map_or_else(|| Side::Host(text.into()), Side::Inside)
    }
}

/// A parser of arguments that are bytes: names of files are not text.
pub fn bytes<T: Clone + Send + Sync + 'static>(of: fn(&OsStr) -> Result<T, String>) -> ValueParser {
    ValueParser::new(OsStringValueParser::new().try_map(move |text| of(&text)))
}

macro_rules! argument {
    ($type:ty, $of:expr) => {
        impl ValueParserFactory for $type {
            type Parser = ValueParser;

            fn value_parser() -> ValueParser {
                bytes($of)
            }
        }
    };
}

argument!(Place, Place::of);
argument!(Readable, Readable::of);
argument!(Whole, |text| Ok(Whole::of(text)));
argument!(Side, |text| Ok(Side::of(text)));

/// The one image that several places are in.
pub fn one_image<'p>(places: impl IntoIterator<Item = &'p Place>) -> Result<PathBuf, Failure> {
    let mut image: Option<&Path> = None;
    for place in places {
        match image {
            Some(known) if known != place.image => {
                let (a, b) = (known.display(), place.image.display());
                return Err(Failure::usage(format!("{a} and {b} are two images; this verb works inside one")));
            }
            _ => image = Some(&place.image),
        }
    }
    image.map(Path::to_owned).ok_or_else(|| Failure::usage("no image is named"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Option<(String, String)> {
        let shown = |path: PathBuf| path.display().to_string();
        Place::of(text.as_ref()).ok().map(|place| (shown(place.image), shown(place.path)))
    }

    #[test]
    fn image_and_path_part_at_the_first_colon_slash() {
        let of = |image: &str, path: &str| Some((image.to_owned(), path.to_owned()));
        assert_eq!(place("a/disk.img:/x/y:/z"), of("a/disk.img", "/x/y:/z"));
        assert_eq!(place("disk.img:"), of("disk.img", "/"));
        assert_eq!(Side::of("plain/file:name".as_ref()), Side::Host("plain/file:name".into()));
        assert_eq!(place(":/nothing"), None);
    }

    #[test]
    fn slashes_in_front_are_one_and_bytes_stay_as_they_are() {
        assert_eq!(place("i:///a//b").map(|(_, path)| path).as_deref(), Some("/a//b"));
        assert_eq!(place("i://").map(|(_, path)| path).as_deref(), Some("/"));
        let odd = Place::of(OsStr::from_bytes(b"i\xff:/p\xfe")).expect("a place");
        assert_eq!(
            (odd.image.as_os_str().as_bytes(), odd.path.as_os_str().as_bytes()),
            (&b"i\xff"[..], &b"/p\xfe"[..])
        );
    }
}
