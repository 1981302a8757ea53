//! Where kernels of the kind `xrt` run: which card, through which library.

use super::cards::{State, cards};
use super::remote::library_file;
use crate::error::CardError;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The card of this machine that images run on.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where sysfs is mounted: cards are looked for there before any library is loaded.
    pub sys: PathBuf,
    /// XRT's library; none: where [`library_file`] finds it.
    pub library: Option<PathBuf>,
    /// Which card, from 0, as XRT counts them.
    pub card: u32,
    /// How long opening the card and loading an image may take.
    pub opening: Duration,
}

impl Default for Place {
    fn default() -> Place {
        let opening = Duration::from_secs(120);
        Place { sys: Path::new("/sys").into(), library: None, card: 0, opening }
    }
}

impl Place {
    /// The library to load, if there is a card to load it for.
    ///
    /// # Errors
    /// [`CardError::NoCard`] with a sentence: sysfs has no card that kernels can run on, or XRT is not installed.
    pub fn ready(&self) -> Result<PathBuf, CardError> {
        let found = cards(&self.sys).map_err(|e| CardError::NoCard(format!("{}: {e}", self.sys.display())))?;
        if !found.iter().any(|c| c.state == State::Ready) {
            return Err(CardError::NoCard("this machine has no card that kernels can run on".into()));
        }
        let missing = || CardError::NoCard("XRT's library is not installed".into());
        self.library.clone().or_else(library_file).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_card_and_a_library_are_needed() {
        let sys = tempfile::tempdir().unwrap();
        let library = Some(PathBuf::from("/lib/xrt.so"));
        let place = Place { sys: sys.path().into(), library, ..Place::default() };
        let why = place.ready().unwrap_err();
        assert_eq!(why.to_string(), "this machine has no card that kernels can run on");
        assert_eq!(why.errno().name(), "ENODEV");
        let card = sys.path().join("bus/pci/devices/0000:65:00.1");
        std::fs::create_dir_all(&card).unwrap();
        std::fs::write(card.join("vendor"), "0x10ee\n").unwrap();
        assert!(place.ready().is_err(), "no driver has it");
        symlink("/bus/pci/drivers/xocl", card.join("driver")).unwrap();
        assert_eq!(place.ready().unwrap(), Path::new("/lib/xrt.so"));
    }
}
