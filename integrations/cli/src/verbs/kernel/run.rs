//! `weldfs kernel run`: one packet through a kernel, here, from standard input to standard output.

use super::build;
use super::host;
use crate::failure::{Doing, Failure, Outcome};
use crate::output::{facts, say};
use crate::words::Words;
use std::io::Read;
use std::path::Path;
use weldfs_fpga::chain::{Chain, Stage};
use weldfs_fpga::kernel::{Fault, Kernel};
use weldfs_fpga::package::Package;

/// Bytes that are read at a time, and room for output.
const PIECE: usize = 256 << 10;

/// Arguments of `weldfs kernel run`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Standard input is one packet. Bytes, cycles and the time that those are at the kernel's clock are\n\
said on standard error. A kernel that is a folder is built first, and runs in a process of its own; a chain\n\
runs here if its stages come with this program.\n\n\
Examples:\n  weldfs kernel run shout --param 0 < text\n  \
weldfs kernel run grep --param text:error < /var/log/syslog | od -A d -t u4"
)]
pub struct Args {
    /// A kernel's folder, or the name of one that comes with this program
    #[arg(value_name = "DIR|NAME", default_value = ".")]
    kernel: String,
    /// A parameter: a number (12, 0x1f, -1); text:STRING, its length in bytes and then the bytes, four to a word;
    /// hex:DIGITS or file:FILE, the bytes alone
    #[arg(long = "param", value_name = "W", allow_hyphen_values = true, value_parser = Words::of)]
    params: Vec<Words>,
    /// Which back-end of a folder; by default the first that kernel.toml has, of model, rtl, hls
    #[arg(long, value_name = "KIND", value_parser = ["model", "rtl", "hls", "xrt"])]
    back_end: Option<String>,
    /// Which card runs it, with --back-end xrt
    #[arg(long, value_name = "N", default_value_t = 0)]
    card: u32,
}

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let Started { mut kernel, clock_mhz, ports } = started(args)?;
    let params: Vec<u32> = Words::all(&args.params);
    let told = |fault: Fault| Failure::new(format!("{}: {fault}", args.kernel));
    kernel.reset(&params).map_err(told)?;
    let mut input = std::io::stdin().lock();
    let (mut buffer, mut out) = (vec![0; PIECE], vec![0; PIECE]);
    let (mut at, mut len, mut end) = (0, 0, false);
    let (mut taken, mut made, mut cycles) = (0u64, 0u64, 0u64);
    loop {
        if at == len && !end {
            (at, len) = (0, input.read(&mut buffer).doing("read", "standard input")?);
            end = len == 0;
        }
        let step = kernel.step(&buffer[at..len], end, &mut out).map_err(told)?;
        facts(|to| to.write_all(&out[..step.made]))?;
        at += step.taken;
        (taken, made, cycles) =
            (taken + step.taken as u64, made + step.made as u64, cycles.saturating_add(step.cycles));
        if step.done {
            break;
        }
        if step.taken == 0 && step.made == 0 && (end || at < len) {
            return Err(Failure::new(format!("{}: it neither takes nor makes anything", args.kernel)));
        }
    }
    let us = cycles as f64 / f64::from(clock_mhz);
    say!("{taken} bytes in, {made} bytes out, {cycles} cycles: {us:.3} us at {clock_mhz} MHz");
    for (port, name) in (0..).zip(&ports) {
        if let Some(value) = kernel.peek(port) {
            say!("{name} = {value}");
        }
    }
    Ok(0)
}

/// A chain of kernels that come with this program: others are in a device alone.
fn chained(package: &Package) -> Result<Box<dyn Kernel>, Failure> {
    let stages = package.manifest().backend.chain().iter().map(|stage| {
        let name = stage.kernel.strip_suffix(":model").unwrap_or(&stage.kernel);
        let known = weldfs_kernels::find(name).zip(weldfs_kernels::manifest(name));
        let (builtin, of) = known.ok_or_else(|| {
            let (chain, stage) = (&package.manifest().name, &stage.kernel);
            Failure::new(format!("{chain}: its stage {stage} does not come with this program: load both into a device"))
        })?;
        Ok(Stage {
            name: of.name,
            kernel: (builtin.make)(),
            params: stage.params.clone(),
            words: of.params.min as usize..=of.params.max as usize,
            ports: of.ports.peek.len() as u32,
        })
    });
    Ok(Box::new(Chain::new(stages.collect::<Result<_, Failure>>()?)))
}

struct Started {
    kernel: Box<dyn Kernel>,
    clock_mhz: u32,
    /// Names of its debug ports, from 0.
    ports: Vec<String>,
}

fn started(args: &Args) -> Result<Started, Failure> {
    let folder = Path::new(&args.kernel);
    let as_model = args.back_end.as_deref().is_none_or(|kind| kind == "model");
    if !folder.join("kernel.toml").is_file() {
        // One of the table, or a chain of those.
        return match weldfs_kernels::make(&args.kernel) {
            Some(kernel) if as_model => Ok(Started { kernel, clock_mhz: host::BUILTIN_MHZ, ports: Vec::new() }),
            Some(_) => Err(Failure::new(format!("{}: comes with this program as a model alone", args.kernel))),
            None => Err(Failure::new(format!("{}: no kernel's folder, and no kernel of this name", args.kernel))),
        };
    }
    let package = host::package(folder)?;
    let (clock_mhz, ports) = (package.manifest().clock_mhz, package.manifest().ports.peek.clone());
    if args.back_end.as_deref() == Some("xrt") {
        return Ok(Started { kernel: Box::new(host::on_card(&package, args.card)?), clock_mhz, ports });
    }
    if as_model && !package.manifest().backend.chain().is_empty() {
        return Ok(Started { kernel: chained(&package)?, clock_mhz, ports });
    }
    let kind = host::kind(&package, args.back_end.as_deref())?;
    build::build(folder, kind)?;
    Ok(Started { kernel: host::start(&package, kind, None, None)?, clock_mhz, ports })
}
