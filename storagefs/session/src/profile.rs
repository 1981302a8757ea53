//! The emulated hardware's numbers: link, medium, cores, slots, memory.
//!
//! The default profile adds nothing. With a profile, a command's completion is held back until the instant at which the
//! modelled device would have posted it: link latency each way, transfer at the link's bandwidth (transfers queue
//! behind each other), what it asked of the modelled medium, and the core's time stretched by its speed factor. A core
//! that has run a slice takes no other before the emulated one would be done with it, so that queues build up, and are
//! scheduled, as on the modelled device. What that comes to is computed in `model` of weldfs-device.

mod pcie;
mod quantity;
mod slots;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use pcie::Pcie;
pub use quantity::{
    Quantity, count, long_nanoseconds, megahertz, memory_bytes, nanoseconds, per_second, request_bytes,
    short_nanoseconds,
};
pub use slots::{DRAM_BYTES_MAX, SlotSize, Slots, Timed};

/// The slowest core that is modelled: below this one slice lasts so long that the device looks dead.
pub const SPEED_MIN: f64 = 0.001;
/// Less device memory than this holds no cache at all.
pub const MEMORY_MIN: u64 = 1 << 20;
/// The longest latency, nanoseconds: above, the device looks dead.
pub(crate) const LATENCY_NS_MAX: u64 = 1_000_000_000;
/// The most channels of a medium.
pub const CHANNELS_MAX: u32 = 256;

/// One emulated device. Strict TOML: an unknown key is an error.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// What reports call it.
    pub name: String,
    /// Host link.
    pub link: Link,
    /// The storage chips and their channels.
    pub media: Media,
    /// Processor cores of the device.
    pub core: Core,
    /// FPGA slots of the device.
    pub slots: Slots,
    /// Device memory, bytes: from 1 MiB on, or 0 = what the command line or the default says.
    pub memory_bytes: u64,
}

/// The link between host and device.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// One-way latency, nanoseconds.
    pub latency_ns: u64,
    /// Its bandwidth as that of a PCIe link.
    pub pcie: Pcie,
    /// Bytes per second each way; 0 = what `pcie` says.
    pub bandwidth_bytes_per_s: u64,
    /// Bytes per second from host to device; 0 = as the other two say.
    pub to_device_bytes_per_s: u64,
    /// Bytes per second from device to host; 0 = as the other two say.
    pub to_host_bytes_per_s: u64,
}

impl Link {
    fn each_way(self) -> u64 {
        if self.bandwidth_bytes_per_s == 0 { self.pcie.bytes_per_s() } else { self.bandwidth_bytes_per_s }
    }

    /// Bytes per second from host to device; 0 = unlimited.
    pub fn to_device(self) -> u64 {
        if self.to_device_bytes_per_s == 0 { self.each_way() } else { self.to_device_bytes_per_s }
    }

    /// Bytes per second from device to host; 0 = unlimited.
    pub fn to_host(self) -> u64 {
        if self.to_host_bytes_per_s == 0 { self.each_way() } else { self.to_host_bytes_per_s }
    }
}

/// The medium: storage chips behind channels, with blocks of 4 KiB interleaved over them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Media {
    /// Channels; block n is on channel n modulo their number.
    pub channels: u32,
    /// Of an access, read or write, nanoseconds.
    pub latency_ns: u64,
    /// Bytes per second of all channels together, reads and writes; 0 = unlimited.
    pub bandwidth_bytes_per_s: u64,
    /// Accesses per second, of any length; 0 = unlimited.
    pub iops: u64,
}

impl Default for Media {
    fn default() -> Self {
        Media { channels: 1, latency_ns: 0, bandwidth_bytes_per_s: 0, iops: 0 }
    }
}

/// The device's cores.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Core {
    /// Speed relative to a host core: 0.5 takes twice as long. From 0.001 to 1.
    pub speed: f64,
    /// Device threads; 0 = what the command line or the default says.
    pub count: u32,
}

impl Default for Core {
    fn default() -> Self {
        Core { speed: 1.0, count: 0 }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Profile {
            name: "none".into(),
            link: Link::default(),
            media: Media::default(),
            core: Core::default(),
            slots: Slots::default(),
            memory_bytes: 0,
        }
    }
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file could not be read.
    #[error("profile {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Not the TOML of a profile.
    #[error("{0}")]
    Syntax(String),
    /// A number out of range.
    #[error("{0}")]
    Value(&'static str),
    /// Wrong in a file.
    #[error("profile {path}: {source}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong in it.
        source: Box<ProfileError>,
    },
}

/// What is wrong with TOML, in one line, which names that of the text.
pub(super) fn said(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().trim().replace('\n', ", ");
    let before = error.span().and_then(|span| text.get(..span.start));
    before.map_or_else(|| what.clone(), |before| format!("line {}: {what}", before.matches('\n').count() + 1))
}

impl Profile {
    /// Parses and checks a profile.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let p: Profile = toml::from_str(text).map_err(|e| ProfileError::Syntax(said(text, &e)))?;
        p.check().map_err(ProfileError::Value)?;
        Ok(p)
    }

    /// What is wrong with it.
    pub fn check(&self) -> Result<(), &'static str> {
        let Profile { name: _, link, media, core, slots, memory_bytes } = self;
        if !(core.speed >= SPEED_MIN && core.speed <= 1.0) {
            return Err("core.speed must be at least 0.001 and at most 1");
        }
        if *memory_bytes != 0 && *memory_bytes < MEMORY_MIN {
            return Err("memory_bytes must be 0 or at least 1048576 (1 MiB)");
        }
        if link.latency_ns > LATENCY_NS_MAX {
            return Err("link.latency_ns must be at most one second");
        }
        if link.bandwidth_bytes_per_s != 0 && link.pcie != Pcie::default() {
            return Err("link.pcie and link.bandwidth_bytes_per_s both say the bandwidth: only one of them can");
        }
        if media.latency_ns > LATENCY_NS_MAX {
            return Err("media.latency_ns must be at most one second");
        }
        if !(1..=CHANNELS_MAX).contains(&media.channels) {
            return Err("media.channels must be at least 1 and at most 256");
        }
        if core.count > 256 {
            return Err("core.count must be at most 256");
        }
        slots.check()
    }

    /// Reads a profile file.
    pub fn load(path: &Path) -> Result<Profile, ProfileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ProfileError::Read { path: path.display().to_string(), source })?;
        Profile::parse(&text).map_err(|e| ProfileError::File { path: path.display().to_string(), source: Box::new(e) })
    }

    /// True when it adds no delay: completions are then posted as they come.
    pub fn is_free(&self) -> bool {
        self.link == Link::default() && self.core.speed >= 1.0 && !self.models_media()
    }

    /// True when the medium is modelled: any of its keys is another than the default.
    pub fn models_media(&self) -> bool {
        self.media != Media::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_profile_is_free() {
        let p = Profile::parse("").unwrap();
        assert!(p.is_free() && !p.models_media());
    }

    #[test]
    fn unknown_keys_and_silly_numbers_are_refused() {
        assert!(Profile::parse("colour = 1").is_err());
        assert!(Profile::parse("[link]\nlatency = 3").is_err());
        assert!(Profile::parse("[core]\nspeed = 0.0").is_err());
        assert!(Profile::parse("[core]\nspeed = 2.0").is_err());
        assert!(Profile::parse("[media]\nchannels = 0").is_err());
        assert!(Profile::parse("[media]\nqueues = 3").is_err());
        assert!(Profile::parse("name = \"x\"\n[link]\nlatency_ns = 500\nbandwidth_bytes_per_s = 1000000000").is_ok());
    }

    #[test]
    fn what_is_wrong_is_one_line_that_names_the_line_of_the_profile() {
        let said = |text: &str| Profile::parse(text).unwrap_err().to_string();
        for (text, line, words) in [
            ("name = \"x\"\n\n[link]\nlatency = 3\n", 4, "unknown field `latency`"),
            ("[link]\nlatency_ns = \"1\"", 2, "invalid type"),
            ("[link]\npcie = \"9x9\"", 2, ""),
            ("[link", 1, ""),
            ("a = 1\na = 2", 2, "duplicate key"),
        ] {
            let said = said(text);
            let whole = said.starts_with(&format!("line {line}: ")) && said.contains(words);
            assert!(whole && !said.contains('\n') && !said.contains("\\n"), "{text:?}: {said:?}");
        }
    }

    #[test]
    fn the_bandwidth_of_a_link_is_said_once() {
        let both = Profile::parse("[link]\npcie = \"3x8\"\nbandwidth_bytes_per_s = 5");
        assert!(both.is_err_and(|e| e.to_string().contains("only one")));
        let link = Profile::parse("[link]\npcie = \"3x8\"\nto_device_bytes_per_s = 5").unwrap().link;
        assert_eq!((link.to_device(), link.to_host()), (5, link.pcie.bytes_per_s()));
    }
}
