//! The emulated hardware's numbers, and what they do to a completion's time.
//!
//! The default profile adds nothing. With a profile, a command's completion is held back until the instant at which the
//! modelled device would have posted it: link latency each way, transfer at the link's bandwidth (transfers queue
//! behind each other), and the core's time stretched by its speed factor (commands queue behind each other on a
//! core).

use std::path::Path;

use serde::{Deserialize, Serialize};

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
    /// Device memory, bytes; 0 = what the command line or the default says.
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
    /// Speed relative to a host core: 0.5 takes twice as long. In (0, 1].
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
    #[error("profile: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A number out of range.
    #[error("profile: {0}")]
    Value(&'static str),
}

impl Profile {
    /// Parses and checks a profile.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let p: Profile = toml::from_str(text)?;
        if !(p.core.speed > 0.0 && p.core.speed <= 1.0) {
            return Err(ProfileError::Value("core.speed must be above 0 and at most 1"));
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
        Profile::parse(&text)
    }

    /// True when it adds no delay: completions are then posted as they come.
    pub fn is_free(&self) -> bool {
        self.link == Link::default() && self.core.speed >= 1.0
    }
}

/// The modelled clock of one device thread's core and link share.
#[derive(Debug)]
pub struct Model {
    latency_ns: u64,
    ns_per_byte: f64,
    stretch: f64,
    in_free: u64,
    out_free: u64,
    core_free: u64,
}

impl Model {
    /// At time zero, idle.
    pub fn new(p: &Profile) -> Model {
        let bw = p.link.bandwidth_bytes_per_s;
        Model {
            latency_ns: p.link.latency_ns,
            ns_per_byte: if bw == 0 { 0.0 } else { 1e9 / bw as f64 },
            stretch: 1.0 / p.core.speed,
            in_free: 0,
            out_free: 0,
            core_free: 0,
        }
    }

    /// When the completion of a command may appear: it was taken at `arrived`, its work took `process_ns` of a host
    /// core and was done at `done` (waits for media included), and it moved these bytes. All nanoseconds.
    pub fn completion(&mut self, arrived: u64, done: u64, process_ns: u64, bytes_in: u64, bytes_out: u64) -> u64 {
        let received = self.in_free.max(arrived) + (bytes_in as f64 * self.ns_per_byte) as u64;
        self.in_free = received;
        let start = self.core_free.max(received + self.latency_ns);
        let waited = (done - arrived.min(done)).saturating_sub(process_ns);
        let busy = (process_ns as f64 * self.stretch) as u64;
        self.core_free = start + busy;
        let sent = self.out_free.max(start + busy + waited) + (bytes_out as f64 * self.ns_per_byte) as u64;
        self.out_free = sent;
        (sent + self.latency_ns).max(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_profile_adds_no_delay() {
        let p = Profile::parse("").unwrap();
        assert!(p.is_free());
        let mut m = Model::new(&p);
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
        let mut m = Model::new(&p);
        assert_eq!(m.completion(0, 0, 0, 100, 50), 2150);
        assert_eq!(m.completion(0, 0, 0, 100, 50), 2250);
    }

    #[test]
    fn a_slow_core_stretches_work_and_lowers_throughput() {
        let mut m = Model::new(&Profile::parse("[core]\nspeed = 0.25").unwrap());
        assert_eq!(m.completion(0, 100, 100, 0, 0), 400);
        assert_eq!(m.completion(0, 100, 100, 0, 0), 800);
    }
}
