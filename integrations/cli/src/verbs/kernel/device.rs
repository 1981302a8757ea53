//! Kernels of a running device: what it has, loading and unloading, debug ports.

use crate::device;
use crate::failure::{Doing, Failure, Outcome, reason};
use crate::output;
use serde::Deserialize;
use std::io;
use std::path::PathBuf;
use weldfs::{Client, Errno};

/// Arguments of `weldfs kernel load`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The device reads the folder: kernel.toml, and the back-end that `weldfs kernel test` has built.\n\
What runs is the file as it is when a slot gets the kernel. Only root and the user that runs the device\n\
can load, unload, activate and deactivate."
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
#[command(after_help = "The values are those of the last packet that the kernel had in its slot.")]
pub struct Peek {
    #[command(flatten)]
    of: Named,
    /// Which port, by name or number; by default all that have a name
    port: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A kernel, as the device lists it.
#[derive(Deserialize)]
struct Kernel {
    name: String,
    version: String,
    about: String,
    active: bool,
    backends: Vec<String>,
    backend: String,
    unusable: Vec<Unusable>,
    slots: Vec<usize>,
    peek: Vec<String>,
}

/// A back-end that the device cannot run now, and why.
#[derive(Deserialize)]
struct Unusable {
    backend: String,
    why: String,
}

#[derive(Deserialize)]
struct Listed {
    kernels: Vec<Kernel>,
}

/// A value of a debug port.
#[derive(serde::Serialize)]
struct Value {
    port: String,
    word: u32,
}

/// Loads a package, and activates it.
pub fn load(args: &Load) -> Outcome {
    let client = device::running(&args.image)?;
    let package = super::host::package(&args.dir)?;
    let name = &package.manifest().name;
    let folder = args.dir.canonicalize().doing("find", &args.dir)?;
    let what = format!("load {}", args.dir.display());
    let loaded = client.load_kernel(&folder).map_err(|e| match e.raw_os_error().map(Errno) {
        Some(Errno::EXIST) => refused(&what, &format!("the device has another kernel with the name {name}, or its id")),
        Some(Errno::NOENT) => refused(&what, "a file is missing (`weldfs kernel test` builds it)"),
        Some(Errno::INVAL) => refused(&what, "the device finds something wrong in the folder, and its log says what"),
        Some(Errno::ACCES) => refused(&what, "the device may not read the folder"),
        _ => told(&what, &e),
    })?;
    if !args.inactive {
        let what = format!("activate {loaded}");
        client.activate_kernel(&loaded).map_err(|e| told(&what, &e))?;
    }
    let Listed { kernels } = parsed(&client.kernels_json().map_err(|e| told("list kernels", &e))?)?;
    for unusable in kernels.iter().filter(|k| k.name == loaded).flat_map(|k| &k.unusable) {
        output::say!("{}", cannot(&loaded, unusable));
    }
    let state = if args.inactive { "loaded" } else { "loaded and active" };
    output::facts(|out| writeln!(out, "{loaded}: {state}"))?;
    Ok(0)
}

/// Forgets a kernel.
pub fn unload(args: &Named) -> Outcome {
    one(args, "unload", |client, name| match client.unload_kernel(name) {
        // One that is active has to be deactivated first, which fails where it is used at the moment.
        Err(e) if e.raw_os_error() == Some(Errno::BUSY.0) => {
            client.deactivate_kernel(name)?;
            client.unload_kernel(name)
        }
        done => done,
    })
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
    call(&client, &args.name).map_err(|e| told(&format!("{verb} {}", args.name), &e))?;
    Ok(0)
}

/// Lists kernels.
pub fn list(args: &List) -> Outcome {
    let client = device::running(&args.image)?;
    let text = client.kernels_json().map_err(|e| told("list kernels", &e))?;
    if args.json {
        let all: serde_json::Value = parsed(&text)?;
        output::json(&all)?;
        return Ok(0);
    }
    let Listed { kernels } = parsed(&text)?;
    output::facts(|out| {
        writeln!(out, "{:<16} {:<8} {:<9} {:<16} {:<6} about", "kernel", "version", "state", "back-ends", "slots")?;
        kernels.iter().try_for_each(|k| {
            let state = if k.active { "active" } else { "inactive" };
            let mut backends: Vec<&str> = k.backends.iter().map(String::as_str).collect();
            // The one that is used comes first.
            backends.sort_by_key(|b| *b != k.backend);
            let slots: Vec<String> = k.slots.iter().map(usize::to_string).collect();
            let slots = if slots.is_empty() { "-".to_owned() } else { slots.join(",") };
            let backends = backends.join(",");
            let about = output::plain(&k.about);
            writeln!(out, "{:<16} {:<8} {state:<9} {backends:<16} {slots:<6} {about}", k.name, k.version)
        })?;
        let unusable = kernels.iter().flat_map(|k| k.unusable.iter().map(|u| (&k.name, u)));
        unusable.into_iter().try_for_each(|(name, u)| writeln!(out, "{}", output::plain(&cannot(name, u))))
    })?;
    Ok(0)
}

fn cannot(name: &str, Unusable { backend, why }: &Unusable) -> String {
    format!("{name}: its back-end {backend} cannot be used: {why}")
}

/// Shows debug ports.
pub fn peek(args: &Peek) -> Outcome {
    let Named { image, name } = &args.of;
    let client = device::running(image)?;
    let Listed { kernels } = parsed(&client.kernels_json().map_err(|e| told("list kernels", &e))?)?;
    let kernel = kernels.iter().find(|k| k.name == *name);
    let kernel = kernel.ok_or_else(|| Failure::new(format!("the device has no kernel {name}")))?;
    let values: Vec<Value> = ports(kernel, args.port.as_deref())?
        .into_iter()
        .map(|(port, shown)| {
            let word = client.peek_kernel(name, port).map_err(|e| match e.raw_os_error().map(Errno) {
                Some(Errno::NOENT) if kernel.slots.is_empty() => {
                    refused(&format!("peek at {name}"), "it is in no slot: nothing has used it since it was loaded")
                }
                Some(Errno::NOENT) => refused(&format!("peek at {name}"), &format!("it has no port {shown}")),
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

fn told(what: &str, e: &io::Error) -> Failure {
    match e.raw_os_error().map(Errno) {
        Some(Errno::NOENT) => refused(what, "the device has no such kernel"),
        Some(Errno::BUSY) => refused(what, "it is in use: a stream or a command has it in a slot"),
        Some(Errno::PERM) => {
            refused(what, "only root and the user that runs the device may, and what the device brings stays")
        }
        Some(Errno::OPNOTSUPP) => refused(what, "a directory of the host is served there, which has no kernels"),
        _ => refused(what, &reason(e)),
    }
}
