//! Kernels of a running device: what it has, loading and unloading, debug ports.

use crate::device;
use crate::failure::{Doing, Failure, Outcome, reason};
use crate::kernels::{Card, Kernel, Unusable};
use crate::output;
use std::io;
use std::path::PathBuf;
use weldfs::{Client, Errno};

/// Arguments of `weldfs kernel load`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The device reads the folder: kernel.toml, and the back-end that `weldfs kernel test` has built.\n\
What runs is the file as it is when a slot gets the kernel. Only root and the user that runs the device\n\
can load, unload, activate, deactivate and peek."
)]
pub struct Load {
    /// The device's socket, or the image that it serves
    #[arg(value_name = "SOCKET|IMAGE")]
    image: PathBuf,
    /// The kernel's folder
    dir: PathBuf,
    /// Only load it: `activate` lets it be used
    #[arg(long)]
    inactive: bool,
}

/// Arguments of the verbs that name a kernel of a device.
#[derive(clap::Args, Debug)]
pub struct Named {
    /// The device's socket, or the image that it serves
    #[arg(value_name = "SOCKET|IMAGE")]
    image: PathBuf,
    /// The kernel
    name: String,
}

/// Arguments of `weldfs kernel ls`.
#[derive(clap::Args, Debug)]
pub struct List {
    /// The device's socket, or the image that it serves
    #[arg(value_name = "SOCKET|IMAGE")]
    image: PathBuf,
    /// As JSON: kernels, slots, and what tenants used
    #[arg(long)]
    json: bool,
}

/// Arguments of `weldfs kernel peek`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The values are those of the last packet that the kernel had in its slot. Only root and the user\n\
that runs the device can look at them."
)]
pub struct Peek {
    #[command(flatten)]
    of: Named,
    /// Which port, by name or number; by default all that have a name
    port: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A value of a debug port.
#[derive(serde::Serialize)]
struct Value {
    port: String,
    word: u32,
}

/// Arguments of `weldfs kernel unload`.
#[derive(clap::Args, Debug)]
pub struct Unload {
    #[command(flatten)]
    of: Named,
    /// Deactivate it first, if it is active
    #[arg(short, long)]
    deactivate: bool,
}

/// Loads a package, and activates it.
pub fn load(args: &Load) -> Outcome {
    let client = device::running(&args.image)?;
    super::host::package(&args.dir)?;
    let folder = args.dir.canonicalize().doing("find", &args.dir)?;
    let what = format!("load {}", args.dir.display());
    let loaded = client.load_kernel(&folder).map_err(|e| match client.try_kernel(&folder) {
        Ok(why) if !why.is_empty() => refused(&what, &built(why)),
        _ => told(&what, &e),
    })?;
    if !args.inactive {
        client.activate_kernel(&loaded).map_err(|e| {
            let why = match e.raw_os_error().map(Errno) {
                Some(Errno::NOSPC) => "no slot is large enough for it (slots.region, docs/PROFILES.md)".to_owned(),
                _ => reason(&e),
            };
            let stays = format!("it stays loaded, and is not active (weldfs kernel unload {loaded} takes it out)");
            refused(&format!("activate {loaded}"), &format!("{why}; {stays}"))
        })?;
    }
    let card = card(&client)?;
    for unusable in card.kernel(&loaded).iter().flat_map(|k| &k.unusable) {
        output::say!("{}", cannot(&[&loaded], unusable));
    }
    let state = if args.inactive { "loaded" } else { "loaded and active" };
    output::facts(|out| writeln!(out, "{loaded}: {state}"))?;
    Ok(0)
}

/// With what to do where a library has not been built.
fn built(why: String) -> String {
    let missing = why.ends_with(".so: No such file or directory");
    if missing { format!("{why}: it has to be built first (weldfs kernel test)") } else { why }
}

/// Forgets a kernel.
pub fn unload(args: &Unload) -> Outcome {
    let client = device::running(&args.of.image)?;
    let name = &args.of.name;
    let mine = card(&client)?.kernel(name).is_some_and(|k| k.active && !k.device_defined);
    if args.deactivate && mine {
        client.deactivate_kernel(name).map_err(|e| told_of(&client, "deactivate", name, &e))?;
    }
    client.unload_kernel(name).map_err(|e| told_of(&client, "unload", name, &e))?;
    Ok(0)
}

/// Lets a kernel be used.
pub fn activate(args: &Named) -> Outcome {
    one(args, "activate", Client::activate_kernel)
}

/// Keeps a kernel from being used.
pub fn deactivate(args: &Named) -> Outcome {
    one(args, "deactivate", Client::deactivate_kernel)
}

fn one(args: &Named, verb: &str, call: impl Fn(&Client, &str) -> io::Result<()>) -> Outcome {
    let client = device::running(&args.image)?;
    call(&client, &args.name).map_err(|e| told_of(&client, verb, &args.name, &e))?;
    Ok(0)
}

/// Lists kernels.
pub fn list(args: &List) -> Outcome {
    let client = device::running(&args.image)?;
    if args.json {
        let text = client.kernels_json().map_err(|e| told("list kernels", &e))?;
        let all: serde_json::Value = parsed(&text)?;
        output::json(&all)?;
        return Ok(0);
    }
    let kernels = card(&client)?.kernels;
    output::facts(|out| {
        writeln!(out, "{:<16} {:<8} {:<9} {:<16} {:<6} about", "kernel", "version", "state", "back-ends", "slots")?;
        kernels.iter().try_for_each(|k| {
            let state = if k.active { "active" } else { "inactive" };
            let slots: Vec<String> = k.slots.iter().map(usize::to_string).collect();
            let slots = if slots.is_empty() { "-".to_owned() } else { slots.join(",") };
            let (backends, about) = (backends(k), output::plain(&k.about));
            writeln!(out, "{:<16} {:<8} {state:<9} {backends:<16} {slots:<6} {about}", k.name, k.version)
        })?;
        reasons(&kernels).iter().try_for_each(|(names, u)| writeln!(out, "{}", output::plain(&cannot(names, u))))
    })?;
    Ok(0)
}

/// Back-ends with commas between: first the one that is used, and in parentheses those that cannot be.
fn backends(kernel: &Kernel) -> String {
    let mut all: Vec<&String> = kernel.backends.iter().collect();
    all.sort_by_key(|b| **b != kernel.backend);
    let usable = |b: &String| kernel.unusable.iter().all(|u| u.backend != *b);
    let shown: Vec<String> = all.into_iter().map(|b| if usable(b) { b.clone() } else { format!("({b})") }).collect();
    shown.join(",")
}

/// Why back-ends cannot be used, each reason once, with the kernels that have it.
fn reasons(kernels: &[Kernel]) -> Vec<(Vec<&str>, &Unusable)> {
    let mut all: Vec<(Vec<&str>, &Unusable)> = Vec::new();
    for (name, unusable) in kernels.iter().flat_map(|k| k.unusable.iter().map(|u| (k.name.as_str(), u))) {
        let same = |(_, u): &&mut (_, &Unusable)| (&u.backend, &u.why) == (&unusable.backend, &unusable.why);
        match all.iter_mut().find(same) {
            Some((names, _)) => names.push(name),
            None => all.push((vec![name], unusable)),
        }
    }
    all
}

fn cannot(names: &[&str], Unusable { backend, why }: &Unusable) -> String {
    let whose = if names.len() == 1 { "its" } else { "their" };
    format!("{}: {whose} back-end {backend} cannot be used: {why}", names.join(", "))
}

/// Shows debug ports.
pub fn peek(args: &Peek) -> Outcome {
    let Named { image, name } = &args.of;
    let client = device::running(image)?;
    let card = card(&client)?;
    let kernel = card.kernel(name);
    let kernel = kernel.ok_or_else(|| Failure::new(format!("the device has no kernel {name}")))?;
    let values: Vec<Value> = ports(kernel, args.port.as_deref())?
        .into_iter()
        .map(|(port, shown)| {
            let word = client.peek_kernel(name, port).map_err(|e| match e.raw_os_error().map(Errno) {
                Some(Errno::NOENT) if kernel.slots.is_empty() => {
                    refused(&format!("peek at {name}"), "it is in no slot: nothing has used it since it was loaded")
                }
                Some(Errno::NOENT) => refused(&format!("peek at {name}"), &format!("it has no port {shown}")),
                Some(Errno::BUSY) => refused(
                    &format!("peek at {name}"),
                    "it is busy: its ports can be looked at when it does not compute",
                ),
                Some(Errno::PERM) => refused(&format!("peek at {name}"), &restricted("look at debug ports")),
                _ => told(&format!("peek at {name}"), &e),
            })?;
            Ok(Value { port: shown, word })
        })
        .collect::<Result<_, Failure>>()?;
    if args.json {
        output::json(&values)?;
        return Ok(0);
    }
    output::facts(|out| values.iter().try_for_each(|v| writeln!(out, "{} = {}", v.port, v.word)))?;
    Ok(0)
}

/// Numbers and names of the ports that were asked for.
fn ports(kernel: &Kernel, asked: Option<&str>) -> Result<Vec<(u32, String)>, Failure> {
    let all: Vec<(u32, String)> = (0..).zip(kernel.peek.iter().cloned()).collect();
    let Some(asked) = asked else {
        if all.is_empty() {
            return Err(Failure::new(format!("{} names no debug ports", kernel.name)));
        }
        return Ok(all);
    };
    let found = all.into_iter().find(|(port, name)| name == asked || port.to_string() == asked);
    match (found, asked.parse()) {
        (Some(found), _) => Ok(vec![found]),
        (None, Ok(port)) => Ok(vec![(port, asked.to_owned())]),
        (None, Err(_)) => Err(Failure::new(format!("{} has no debug port {asked}", kernel.name))),
    }
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|e| Failure::new(format!("the device's list of kernels: {e}")))
}

fn refused(what: &str, why: &str) -> Failure {
    Failure::new(format!("cannot {what}: {why}"))
}

/// Of what only some may do.
fn restricted(act: &str) -> String {
    format!("only root and the user that runs the device may {act}")
}

fn card(client: &Client) -> Result<Card, Failure> {
    parsed(&client.kernels_json().map_err(|e| told("list kernels", &e))?)
}

fn told(what: &str, e: &io::Error) -> Failure {
    match e.raw_os_error().map(Errno) {
        Some(Errno::PERM) => refused(what, &restricted("load kernels")),
        Some(Errno::OPNOTSUPP) => refused(what, "a directory of the host is served there, which has no kernels"),
        _ => refused(what, &reason(e)),
    }
}

/// Why a verb did not do what it should with a kernel of the device.
fn told_of(client: &Client, verb: &str, name: &str, e: &io::Error) -> Failure {
    let card = card(client).ok();
    let kernel = card.as_ref().and_then(|card| card.kernel(name));
    let what = format!("{verb} {name}");
    match e.raw_os_error().map(Errno) {
        Some(Errno::NOENT) => refused(&what, "the device has no such kernel"),
        Some(Errno::BUSY) if verb == "unload" && kernel.is_none_or(|k| k.active) => {
            refused(&what, "it is active (weldfs kernel deactivate, or unload --deactivate)")
        }
        Some(Errno::BUSY) => refused(&what, "it is in use: a stream or a command has it in a slot"),
        Some(Errno::NOSPC) => refused(&what, "no slot is large enough for it (slots.region, docs/PROFILES.md)"),
        Some(Errno::PERM) if verb == "unload" && kernel.is_some_and(|k| k.device_defined) => {
            refused(&what, "what the device brings stays")
        }
        Some(Errno::PERM) if verb == "deactivate" && kernel.is_some_and(|k| k.slots.contains(&0)) => {
            refused(&what, "slot 0 holds it for ever")
        }
        Some(Errno::PERM) => refused(&what, &restricted(&format!("{verb} kernels"))),
        _ => told(&what, e),
    }
}
