//! The emulated hardware's numbers, and what they do to a completion's time.
//!
//! The default profile adds nothing. With a profile, a command's completion is held back until the instant at which the
//! modelled device would have posted it: link latency each way, transfer at the link's bandwidth (transfers queue
//! behind each other), and the core's time stretched by its speed factor. A core that has run a slice takes no other
//! before the emulated one would be done with it, so that queues build up, and are scheduled, as on the modelled
//! device.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The slowest core that is modelled: below this one slice lasts so long that the device looks dead.
pub const SPEED_MIN: f64 = 0.001;
/// Less device memory than this holds no cache at all.
pub const MEMORY_MIN: u64 = 1 << 20;

/// One emulated device. Strict TOML: an unknown key is an error.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// What reports call it.
    pub name: String,
    /// Host link.
    pub link: Link,
    /// Processor cores of the device.
    pub core: Core,
    /// Device memory, bytes: from 1 MiB on, or 0 = what the command line or the default says.
    pub memory_bytes: u64,
}

/// The link between host and device.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// One-way latency, nanoseconds.
    pub latency_ns: u64,
    /// Bytes per second each way; 0 = unlimited.
    pub bandwidth_bytes_per_s: u64,
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
        Profile { name: "none".into(), link: Link::default(), core: Core::default(), memory_bytes: 0 }
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
    Syntax(#[from] toml::de::Error),
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

impl Profile {
    /// Parses and checks a profile.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let p: Profile = toml::from_str(text)?;
        if !(p.core.speed >= SPEED_MIN && p.core.speed <= 1.0) {
            return Err(ProfileError::Value("core.speed must be at least 0.001 and at most 1"));
        }
        if p.memory_bytes != 0 && p.memory_bytes < MEMORY_MIN {
            return Err(ProfileError::Value("memory_bytes must be 0 or at least 1048576 (1 MiB)"));
        }
        if p.link.latency_ns > 1_000_000_000 {
            return Err(ProfileError::Value("link.latency_ns must be at most one second"));
        }
        if p.core.count > 256 {
            return Err(ProfileError::Value("core.count must be at most 256"));
        }
        Ok(p)
    }

    /// Reads a profile file.
    pub fn load(path: &Path) -> Result<Profile, ProfileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ProfileError::Read { path: path.display().to_string(), source })?;
        Profile::parse(&text).map_err(|e| ProfileError::File { path: path.display().to_string(), source: Box::new(e) })
    }

    /// True when it adds no delay: completions are then posted as they come.
    pub fn is_free(&self) -> bool {
        self.link == Link::default() && self.core.speed >= 1.0
    }
}

/// The modelled link of a device: transfers each way queue behind each other.
#[derive(Debug)]
pub struct LinkModel {
    latency_ns: u64,
    ns_per_byte: f64,
    in_free: u64,
    last_arrived: u64,
    out_free: u64,
}

impl LinkModel {
    /// At time zero, idle.
    pub fn new(p: &Profile) -> LinkModel {
        let bw = p.link.bandwidth_bytes_per_s;
        let ns_per_byte = if bw == 0 { 0.0 } else { 1e9 / bw as f64 };
        LinkModel { latency_ns: p.link.latency_ns, ns_per_byte, in_free: 0, last_arrived: 0, out_free: 0 }
    }

    /// When the completion of a command may appear: it was taken at `arrived`, took `device_ns` of emulated cores, was
    /// over at `over` (by the emulated core's clock, waits included), and moved these bytes. All nanoseconds.
    pub fn completion(&mut self, arrived: u64, over: u64, device_ns: u64, bytes_in: u64, bytes_out: u64) -> u64 {
        let transfer = (bytes_in as f64 * self.ns_per_byte) as u64;
        // Commands end in another order than they came: what came before the last one seen did not wait behind it.
        let in_order = arrived >= self.last_arrived;
        self.last_arrived = self.last_arrived.max(arrived);
        self.in_free = self.in_free.max(self.last_arrived) + transfer;
        let received = if in_order { self.in_free } else { arrived + transfer };
        // No work before everything is there.
        let over = over.max(received + self.latency_ns + device_ns);
        let sent = self.out_free.max(over) + (bytes_out as f64 * self.ns_per_byte) as u64;
        self.out_free = sent;
        sent + self.latency_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_profile_adds_no_delay() {
        let p = Profile::parse("").unwrap();
        assert!(p.is_free());
        let mut m = LinkModel::new(&p);
        for t in [10, 20, 1000] {
            assert_eq!(m.completion(t, t + 5, 5, 4096, 4096), t + 5);
        }
    }

    #[test]
    fn unknown_keys_and_silly_numbers_are_refused() {
        assert!(Profile::parse("colour = 1").is_err());
        assert!(Profile::parse("[link]\nlatency = 3").is_err());
        assert!(Profile::parse("[core]\nspeed = 0.0").is_err());
        assert!(Profile::parse("[core]\nspeed = 2.0").is_err());
        assert!(Profile::parse("name = \"x\"\n[link]\nlatency_ns = 500\nbandwidth_bytes_per_s = 1000000000").is_ok());
    }

    #[test]
    fn latency_counts_both_ways_and_transfers_queue_behind_each_other() {
        let p = Profile::parse("[link]\nlatency_ns = 1000\nbandwidth_bytes_per_s = 1000000000").unwrap();
        let mut m = LinkModel::new(&p);
        assert_eq!(m.completion(0, 0, 0, 100, 50), 2150);
        assert_eq!(m.completion(0, 0, 0, 100, 50), 2250);
    }

    #[test]
    fn a_long_command_that_ends_after_later_ones_is_over_when_it_is_and_holds_nobody_up() {
        let mut m = LinkModel::new(&Profile::parse("[core]\nspeed = 0.25").unwrap());
        for t in (1_000..90_000).step_by(1_000) {
            assert_eq!(m.completion(t, t + 400, 400, 64, 32), t + 400);
        }
        assert_eq!(m.completion(500, 100_000, 50_000, 64, 32), 100_000);
        assert_eq!(m.completion(100_100, 100_500, 400, 64, 32), 100_500);
    }

    #[test]
    fn a_completion_follows_the_emulated_cores_end() {
        let mut m = LinkModel::new(&Profile::parse("[core]\nspeed = 0.25").unwrap());
        assert_eq!(m.completion(0, 400, 400, 0, 0), 400);
        assert_eq!(m.completion(0, 800, 400, 0, 0), 800);
    }
}
