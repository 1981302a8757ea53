//! The modelled link between host and device: latency each way, bandwidth each way.

use super::bucket::{Bucket, Delay};
use weldfs_session::profile::Link;

/// One link, whatever the number of cores. Transfers of a direction queue behind each other.
#[derive(Debug)]
pub struct LinkModel {
    latency_ns: u64,
    to_device: Bucket,
    to_host: Bucket,
    /// The way back.
    back: Delay,
    last_arrived: u64,
    last_over: u64,
}

/// What a command took on the device, for [`LinkModel::completion`]; all nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// When it was taken from its ring.
    pub arrived: u64,
    /// When it was over by the emulated core's clock, waits included.
    pub over: u64,
    /// Time of emulated cores.
    pub device_ns: u64,
    /// When the modelled medium had done all it asked for; 0: it asked for nothing.
    pub media: u64,
}

impl LinkModel {
    /// At time zero, idle.
    pub fn new(link: &Link) -> LinkModel {
        let (to_device, to_host) = (Bucket::new(link.to_device(), 0), Bucket::new(link.to_host(), 0));
        let (latency_ns, back) = (link.latency_ns, Delay::new(link.latency_ns));
        LinkModel { latency_ns, to_device, to_host, back, last_arrived: 0, last_over: 0 }
    }

    /// Other numbers from the next completion on.
    pub fn set(&mut self, link: &Link) {
        (self.latency_ns, self.back.ns) = (link.latency_ns, link.latency_ns);
        self.to_device.set_rate(link.to_device(), 0);
        self.to_host.set_rate(link.to_host(), 0);
    }

    /// When the completion of a command that moved these bytes may appear, nanoseconds.
    pub fn completion(&mut self, took: Took, bytes_in: u64, bytes_out: u64) -> u64 {
        let Took { arrived, over, device_ns, media } = took;
        // Commands end in another order than they came: what came before the last one seen did not wait behind it.
        let received = match arrived >= self.last_arrived {
            true => self.to_device.take(arrived, bytes_in),
            false => {
                self.to_device.take(self.last_arrived, bytes_in);
                arrived + self.to_device.alone(bytes_in)
            }
        };
        self.last_arrived = self.last_arrived.max(arrived);
        // No work, and nothing asked of the medium, before everything is there.
        let there = received + self.latency_ns;
        let media = if media == 0 { 0 } else { media + (there - arrived) };
        let over = over.max(there + device_ns).max(media);
        let sent = match over >= self.last_over {
            true => self.to_host.take(over, bytes_out),
            false => self.to_host.take_before(over, self.last_over, bytes_out),
        };
        self.last_over = self.last_over.max(over);
        self.back.leaves(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_session::profile::Profile;

    fn model(toml: &str) -> LinkModel {
        LinkModel::new(&Profile::parse(toml).unwrap().link)
    }

    fn took(arrived: u64, over: u64, device_ns: u64) -> Took {
        Took { arrived, over, device_ns, media: 0 }
    }

    #[test]
    fn the_default_profile_adds_no_delay() {
        let mut m = model("");
        for t in [10, 20, 1000] {
            assert_eq!(m.completion(took(t, t + 5, 5), 4096, 4096), t + 5);
        }
    }

    #[test]
    fn latency_counts_both_ways_and_transfers_queue_behind_each_other() {
        let mut m = model("[link]\nlatency_ns = 1000\nbandwidth_bytes_per_s = 1000000000");
        assert_eq!(m.completion(took(0, 0, 0), 100, 50), 2150);
        assert_eq!(m.completion(took(0, 0, 0), 100, 50), 2250);
    }

    #[test]
    fn each_way_has_a_bandwidth_of_its_own() {
        let mut m = model("[link]\nto_device_bytes_per_s = 1000000000\nto_host_bytes_per_s = 100000000");
        assert_eq!(m.completion(took(0, 0, 0), 1000, 0), 1000);
        assert_eq!(m.completion(took(5000, 5000, 0), 0, 1000), 15_000);
    }

    #[test]
    fn a_long_command_that_ends_after_later_ones_is_over_when_it_is_and_holds_none_up() {
        let mut m = model("[core]\nspeed = 0.25");
        for t in (1_000..90_000).step_by(1_000) {
            assert_eq!(m.completion(took(t, t + 400, 400), 64, 32), t + 400);
        }
        assert_eq!(m.completion(took(500, 100_000, 50_000), 64, 32), 100_000);
        assert_eq!(m.completion(took(100_100, 100_500, 400), 64, 32), 100_500);
    }

    #[test]
    fn a_completion_follows_the_emulated_cores_end() {
        let mut m = model("[core]\nspeed = 0.25");
        assert_eq!(m.completion(took(0, 400, 400), 0, 0), 400);
        assert_eq!(m.completion(took(0, 800, 400), 0, 0), 800);
    }

    #[test]
    fn a_command_that_waits_for_the_medium_holds_up_none_that_does_not() {
        let mut m = model("[link]\nlatency_ns = 100\nbandwidth_bytes_per_s = 1000000000");
        let slow = Took { arrived: 0, over: 10, device_ns: 10, media: 50_000 };
        // The medium is asked when the command has come over the link: 64 ns and 100 ns later.
        assert_eq!(m.completion(slow, 64, 32), 50_000 + 164 + 32 + 100);
        let quick = m.completion(took(1_000, 1_010, 10), 64, 32);
        assert!(quick < 2_000, "{quick}");
    }
}
