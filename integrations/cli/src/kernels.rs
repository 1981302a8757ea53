//! What keeps a kernel of a device from being used, in words.

use serde::Deserialize;
use weldfs::{Client, Errno};

/// What a device says of its card.
#[derive(Deserialize)]
pub struct Card {
    /// By name.
    pub kernels: Vec<Kernel>,
    tenants: Vec<Tenant>,
}

/// A kernel, as the device lists it.
#[derive(Deserialize)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// One sentence.
    pub about: String,
    /// It may be executed.
    pub active: bool,
    /// It comes with the device.
    pub device_defined: bool,
    /// Its back-ends.
    pub backends: Vec<String>,
    /// The one that is used where none is named.
    pub backend: String,
    /// Those that cannot run now.
    pub unusable: Vec<Unusable>,
    /// What it is a chain of.
    pub stages: Vec<String>,
    /// Slots that it is in.
    pub slots: Vec<usize>,
    /// Names of its debug ports.
    pub peek: Vec<String>,
    parameters: Parameters,
}

/// A back-end that the device cannot run now, and why.
#[derive(Deserialize)]
pub struct Unusable {
    /// Which.
    pub backend: String,
    /// A sentence.
    pub why: String,
}

#[derive(Deserialize)]
struct Parameters {
    min: usize,
    max: usize,
    about: String,
}

#[derive(Deserialize)]
struct Tenant {
    sessions: u64,
    lost: Option<Lost>,
}

#[derive(Deserialize)]
struct Lost {
    kernel: String,
    slot: usize,
    session: u64,
    why: String,
}

/// One use of a kernel.
pub struct Use<'a> {
    /// How a sentence begins: `kernel`, `its kernel`.
    pub called: &'a str,
    /// `NAME` or `NAME:BACKEND`.
    pub kernel: &'a str,
    /// How many parameters it was given.
    pub params: usize,
}

/// The name of `NAME` or `NAME:BACKEND`.
fn name_of(kernel: &str) -> &str {
    kernel.split(':').next().unwrap_or(kernel)
}

impl Card {
    /// That of a device; none where it has none, or does not say.
    pub fn of(client: &Client) -> Option<Card> {
        serde_json::from_str(&client.kernels_json().ok()?).ok()
    }

    /// The kernel of a name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// Why a kernel cannot begin, whatever it is given. None: nothing is known to be in its way.
    pub fn absent(&self, called: &str, asked: &str) -> Option<String> {
        let (name, backend) = asked.split_once(':').unwrap_or((asked, ""));
        let Some(kernel) = self.kernel(name) else {
            return Some(format!("the device has no kernel {name} (weldfs kernel ls)"));
        };
        let backend = if backend.is_empty() { &kernel.backend } else { backend };
        if !kernel.active {
            return Some(format!("{called} {name} is not active (weldfs kernel activate)"));
        }
        if !kernel.backends.iter().any(|b| b == backend) {
            return Some(format!("{called} {name} has no back-end {backend} (weldfs kernel ls)"));
        }
        if let Some(stage) = kernel.stages.iter().map(|s| name_of(s)).find(|s| self.kernel(s).is_none_or(|k| !k.active))
        {
            let wrong = if self.kernel(stage).is_some() { "is not active (weldfs kernel activate)" } else { "is gone" };
            return Some(format!("{called} {name} is a chain, and its stage {stage} {wrong}"));
        }
        let unusable = kernel.unusable.iter().find(|u| u.backend == backend)?;
        Some(format!("{called} {name} cannot run as {backend}: {}", unusable.why))
    }

    /// What a kernel has against its parameters.
    fn refused(&self, used: &Use<'_>) -> String {
        let Use { called, kernel, params } = used;
        let Some(Parameters { min, max, about }) = self.kernel(name_of(kernel)).map(|k| &k.parameters) else {
            return format!("{called} {kernel} refuses its parameters, of which there are {params}");
        };
        let range = if min == max { min.to_string() } else { format!("{min} to {max}") };
        let about = if about.is_empty() { String::new() } else { format!(" ({about})") };
        match (min..=max).contains(&params) {
            true => format!("{called} {kernel} refuses the values of its parameters{about}"),
            false => format!("{called} {kernel} takes {range} parameters{about}, not {params}"),
        }
    }

    /// Why the last session that this client's tenant had was lost, if that was one of this kernel.
    fn lost(&self, used: &Use<'_>) -> Option<String> {
        // Each tenant is told of its own alone.
        let (tenant, lost) = self.tenants.iter().find_map(|t| Some((t, t.lost.as_ref()?)))?;
        let last = lost.kernel == name_of(used.kernel) && lost.session == tenant.sessions;
        last.then(|| format!("{} {} was lost in slot {}: {}", used.called, used.kernel, lost.slot, lost.why))
    }
}

/// Why a kernel did not begin, or did not end well. None: its errno says it well enough, or it is not about the kernel.
pub fn why(client: &Client, used: &Use<'_>, errno: Errno) -> Option<String> {
    let card = Card::of(client)?;
    let Use { called, kernel, .. } = used;
    match errno {
        Errno::NOENT | Errno::NODEV => card.absent(called, kernel),
        Errno::INVAL => Some(card.refused(used)),
        Errno::BADMSG => Some(format!("{called} {kernel} does not take what it is given")),
        Errno::IO => card.lost(used),
        Errno::NOSPC => Some(format!("{called} {kernel} is too large for every slot")),
        _ => None,
    }
}

/// What a command ended with was the end of its device. None: it was not.
pub fn device_ends(client: &Client, errno: Errno) -> Option<String> {
    let gone = || client.kernels_json().is_err_and(|e| e.raw_os_error() == Some(Errno::NODEV.0));
    // Of a client that is there, nothing else is interrupted.
    let ends = errno == Errno::INTR || matches!(errno, Errno::IO | Errno::NODEV) && gone();
    ends.then(|| "the device ends, and has ended this with it".into())
}

/// What ETXTBSY is.
pub const PINNED: &str = "bytes of it are being streamed by a virtual file that is open: they are not cut off before \
     that is closed";
