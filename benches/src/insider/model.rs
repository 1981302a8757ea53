//! Modelled time: the analytical model of EISC (ICCAD 2019, section V-D) over what was counted, for drives that are
//! described by a profile.

use super::forms::{Form, Ran};
use serde::Serialize;
use std::time::Duration;
use weldfs_device::{Profile, ProfileError};

/// Bytes that a kernel's stream is wide, per clock.
const WIDTH: f64 = 64.0;

/// Cores of the modelled host, over which its own work is divided without loss: those of INSIDER's experiments.
pub const HOST_CORES: f64 = 32.0;

/// A modelled drive.
#[derive(Clone, Debug, Serialize)]
pub struct Drive {
    /// The profile's name.
    pub name: String,
    /// Bytes per second of the medium.
    pub media_bytes_per_s: f64,
    /// Bytes per second of the link, one way.
    pub link_bytes_per_s: f64,
    /// Clock of the slots, 1/s.
    pub clock_hz: f64,
}

impl Drive {
    /// The drives of INSIDER's figure 9, from the profiles that are shipped.
    pub fn both() -> Result<[Drive; 2], ProfileError> {
        let of = |text| {
            let p = Profile::parse(text)?;
            Ok::<_, ProfileError>(Drive {
                name: p.name.clone(),
                media_bytes_per_s: p.media.bandwidth_bytes_per_s as f64,
                link_bytes_per_s: p.link.to_host() as f64,
                clock_hz: f64::from(p.slots.clock_mhz) * 1e6,
            })
        };
        Ok([
            of(include_str!("../../../profiles/insider-x8.toml"))?,
            of(include_str!("../../../profiles/insider-x16.toml"))?,
        ])
    }
}

/// What a form takes on a drive, if nothing overlaps: seconds of each part.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parts {
    /// The medium.
    pub drive: f64,
    /// The kernel: cycles by clock.
    pub kernel: f64,
    /// The link: the way that takes longer of the two, which do not hold each other up.
    pub link: f64,
    /// The operating system's way from the drive to the program, as measured here on one core.
    pub stack: f64,
    /// The host's own work, as measured here on one core, by the cores of the modelled host.
    pub host: f64,
}

/// Modelled time of a form.
#[derive(Clone, Debug, Serialize)]
pub struct Modelled {
    /// Seconds.
    pub seconds: f64,
    /// Of what.
    pub parts: Parts,
    /// Which part is the longest; several, where none is shorter by a hundredth.
    pub bottleneck: String,
}

fn longest(p: &Parts) -> String {
    let named =
        [(p.drive, "drive"), (p.kernel, "kernel"), (p.link, "link"), (p.host, "host"), (p.stack, "host's stack")];
    let most = named.iter().map(|n| n.0).fold(0.0, f64::max);
    let last: Vec<_> = named.iter().filter(|n| n.0 >= most * 0.99).map(|n| n.1).collect();
    last.join(" = ")
}

/// The time of a form of which this was counted.
pub fn time(drive: &Drive, form: Form, ran: &Ran) -> Modelled {
    let parts = Parts {
        drive: ran.drive_bytes as f64 / drive.media_bytes_per_s,
        kernel: ran.cycles as f64 / drive.clock_hz,
        link: ran.link_bytes_in.max(ran.link_bytes_out) as f64 / drive.link_bytes_per_s,
        stack: if form == Form::Posix { ran.moving.as_secs_f64() } else { 0.0 },
        host: ran.host.as_secs_f64() / HOST_CORES,
    };
    // Medium and link overlap in every form: a long read is a stream of commands.
    let moved = parts.drive.max(parts.link);
    let seconds = match form {
        Form::Posix => moved + parts.stack + parts.host,
        Form::Bypass => moved + parts.host,
        Form::Pipelined => moved.max(parts.host),
        Form::InDrive => moved.max(parts.kernel).max(parts.host),
    };
    Modelled { seconds, parts, bottleneck: longest(&parts) }
}

/// From the baseline to the drive: how many times faster each step makes it. Their product is the speed-up.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Breakdown {
    /// POSIX to bypass: the I/O stack.
    pub stack: f64,
    /// Bypass to bypass with pipelining.
    pub pipelining: f64,
    /// To a kernel in the drive, if as many bytes as ever crossed the link.
    pub offloading: f64,
    /// By fewer bytes over the link.
    pub reduction: f64,
}

/// Of the times of the four forms; `host` moved all of the bytes.
pub fn breakdown(drive: &Drive, times: &[Modelled], in_drive: &Ran, host: &Ran) -> Breakdown {
    let whole = Ran { link_bytes_in: host.link_bytes_in, link_bytes_out: host.link_bytes_out, ..in_drive.clone() };
    let unreduced = time(drive, Form::InDrive, &whole).seconds;
    let [posix, bypass, pipelined, inside] = [0, 1, 2, 3].map(|at: usize| times[at].seconds);
    Breakdown {
        stack: posix / bypass,
        pipelining: bypass / pipelined,
        offloading: pipelined / unreduced,
        reduction: unreduced / inside,
    }
}

/// EISC's two numbers of an application, and what they say.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Intensity {
    /// Drive bytes per byte over the link.
    pub gamma: f64,
    /// Cycles of the kernel per 64 bytes.
    pub delta: f64,
    /// Equation 1: a kernel in the drive beats one behind the link.
    pub helps: bool,
    /// Equation 2: a faster medium would help still more.
    pub wants_more_drive: bool,
}

/// Of what was counted.
pub fn intensity(drive: &Drive, ran: &Ran) -> Intensity {
    let gamma = ran.drive_bytes as f64 / ran.link_bytes().max(1) as f64;
    let delta = ran.cycles as f64 / (ran.drive_bytes as f64 / WIDTH);
    let wide = WIDTH * drive.clock_hz;
    Intensity {
        gamma,
        delta,
        helps: gamma > 1.0 && delta < wide / drive.link_bytes_per_s,
        wants_more_drive: gamma > drive.media_bytes_per_s / drive.link_bytes_per_s
            && delta < wide / drive.media_bytes_per_s,
    }
}

/// The middle one of several.
pub fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive() -> Drive {
        Drive { name: "d".into(), media_bytes_per_s: 16e9, link_bytes_per_s: 4e9, clock_hz: 250e6 }
    }

    fn ran(cycles: u64, link_bytes_out: u64) -> Ran {
        Ran { cycles, link_bytes_out, drive_bytes: 16_000_000_000, host: Duration::from_secs(1), ..Ran::default() }
    }

    #[test]
    fn times_are_those_of_the_analytical_model() {
        // A second of the medium; one flit a cycle is a second, too; the link takes four for all of it.
        let inside = time(&drive(), Form::InDrive, &ran(500_000_000, 400_000_000));
        assert!((inside.seconds - 2.0).abs() < 1e-9 && inside.bottleneck == "kernel", "{inside:?}");
        assert_eq!(time(&drive(), Form::InDrive, &ran(250_000_000, 400_000_000)).bottleneck, "drive = kernel");
        let host = ran(0, 16_000_000_000);
        assert!((time(&drive(), Form::Pipelined, &host).seconds - 4.0).abs() < 1e-9);
        assert!((time(&drive(), Form::Bypass, &host).seconds - 4.03125).abs() < 1e-9);
    }

    #[test]
    fn the_factors_multiply_to_the_speed_up() {
        let (host, inside) = (ran(0, 16_000_000_000), ran(250_000_000, 400_000_000));
        let posix = Ran { moving: Duration::from_secs(3), ..host.clone() };
        let times: Vec<_> = Form::ALL
            .iter()
            .zip([&posix, &host, &host, &inside])
            .map(|(form, ran)| time(&drive(), *form, ran))
            .collect();
        let b = breakdown(&drive(), &times, &inside, &host);
        let product = b.stack * b.pipelining * b.offloading * b.reduction;
        assert!((product - times[0].seconds / times[3].seconds).abs() < 1e-9, "{b:?}");
        assert!(b.reduction > 3.9, "{b:?}");
    }

    #[test]
    fn offloading_helps_where_both_conditions_hold() {
        assert!(intensity(&drive(), &ran(250_000_000, 1_000_000)).helps);
        assert!(!intensity(&drive(), &ran(250_000_000, 16_000_000_000)).helps, "nothing is saved");
        assert!(!intensity(&drive(), &ran(1_250_000_000, 1_000_000)).helps, "the kernel is slower than the link");
    }
}
