//! `IMAGE:/path`: naming a file inside an image on the command line.

use crate::failure::Failure;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

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

/// Splits at the first `:/`; `IMAGE:` alone is the root.
fn split(text: &std::ffi::OsStr) -> Option<Place> {
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
    let path = if path.is_empty() { b"/".to_vec() } else { path.to_vec() };
    Some(Place {
        image: std::ffi::OsString::from_vec(image.to_vec()).into(),
        path: std::ffi::OsString::from_vec(path).into(),
    })
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        split(text.as_ref()).ok_or_else(|| format!("'{text}' is not of the form IMAGE:/path"))
    }
}

impl FromStr for Whole {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Whole, Self::Err> {
        Ok(match split(text.as_ref()) {
            Some(Place { image, path }) => Whole { image, path: Some(path) },
            None => Whole { image: text.into(), path: None },
        })
    }
}

impl FromStr for Readable {
    type Err = String;

    fn from_str(text: &str) -> Result<Readable, String> {
        if text == "-" { Ok(Readable::Stdin) } else { text.parse().map(Readable::Inside) }
    }
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Side, String> {
        Ok(match split(text.as_ref()) {
            Some(place) => Side::Inside(place),
            None => Side::Host(text.into()),
        })
    }
}

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

    #[test]
    fn image_and_path_part_at_the_first_colon_slash() {
        let place: Place = "a/disk.img:/x/y:/z".parse().expect("a place");
        assert_eq!((place.image.to_str(), place.path.to_str()), (Some("a/disk.img"), Some("/x/y:/z")));
        let root: Place = "disk.img:".parse().expect("a place");
        assert_eq!(root.path.to_str(), Some("/"));
        assert_eq!("plain/file:name".parse::<Side>(), Ok(Side::Host("plain/file:name".into())));
        assert!(":/nothing".parse::<Place>().is_err());
    }
}
