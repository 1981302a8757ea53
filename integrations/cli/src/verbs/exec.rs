//! `weldfs exec`: a fused program, written as text, as one command in a device.

use crate::device::{self, Want};
use crate::failure::{Doing, Failure, Outcome};
use crate::kernels::{self, Use};
use crate::output;
use crate::place::bytes;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weldfs::Client;
use weldfs::catalogue::{Key, KeyKind, Operand, Placement};
use weldfs_ciscops::program::text::{self, Parsed};
use weldfs_ciscops::program::{Micro, Pool, Program};
use weldfs_ciscops::{Cqe, Durability, Errno, TxnMode};

/// The statements, as `--help` shows them; docs/COMMANDS.md has the grammar.
const STATEMENTS: &str = "\
Statements are separated by ';' or line ends, '#' begins a comment. Some of them:
  open PATH r|w|rw [create trunc append ...] [mode OCTAL] [as FILE]      close [FILE]    sync
  read [FILE] OFFSET LENGTH -> BUFFER|@OUT [whole] [pad] [crc32c -> REG] [count -> REG]
  write [FILE] OFFSET|end|after BYTES [crc32c -> REG] [at -> REG]        append [FILE] BYTES
  crc32c|crc32|crc32c-masked BYTES -> REG       load BUFFER OFFSET u32le -> REG
  let REG = VALUE + VALUE                       if VALUE == VALUE else fail ERRNO|end|skip N
  patch|add|and|or|xor|cas BUFFER OFFSET ...    if holds BUFFER OFFSET BYTES else ...
  seal|unseal BUFFER -> BUFFER key NAME         compress|decompress lz4|zstd|snappy BUFFER -> BUFFER
  kernel NAME[:BACKEND](NUMBER|REG|\"text\", ...) BUFFER -> BUFFER      (a packet through a slot; weldfs kernel ls)
  copy FILE OFFSET LENGTH -> FILE end           size|truncate|rename|unlink|mkdir|link|symlink|set ...
BYTES are a buffer, a register, @IN, \"text\" or x\"hex\"; numbers take k, m, g. The whole program is one command:
all of it happens or nothing (--mode micro: its steps one by one). docs/COMMANDS.md has all of it.

  weldfs exec disk.img 'open /f rw; read 0 4k -> a; crc32c a -> c; append c; close'

A record and its checksum, computed in a slot of the drive:
  weldfs exec disk.img --placement slot --input R=record 'open /log rw create; write end @R crc32c -> c; append c'";

/// Arguments of `weldfs exec`.
#[derive(clap::Args, Debug)]
#[command(after_help = STATEMENTS)]
pub struct Args {
    /// Image, or socket of a running device, or a directory that is served
    #[arg(value_name = "SOCKET|IMAGE|DIR")]
    image: PathBuf,
    /// The program
    #[arg(value_name = "TEXT", required_unless_present = "file", conflicts_with = "file")]
    text: Option<String>,
    /// Read the program from a file (- is stdin)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Bytes that the program calls @NAME
    #[arg(long, value_name = "NAME=FILE", value_parser = bytes(Binding::of))]
    input: Vec<Binding>,
    /// Key that the program calls NAME; KIND is xts128, xts256, gcm128 or gcm256, FILE holds its bytes or their
    /// hexadecimal digits. It is forgotten when the command ends
    #[arg(long, value_name = "NAME=KIND:FILE", value_parser = bytes(KeyFile::of))]
    key: Vec<KeyFile>,
    /// Where the bytes go that the program puts in @NAME (- is stdout)
    #[arg(long, value_name = "NAME=FILE", value_parser = bytes(Binding::of))]
    output: Vec<Binding>,
    /// When the effects must be on the medium
    #[arg(long, value_enum, default_value_t = When::Durable)]
    durability: When,
    /// What a failure or a crash may leave: nothing of it, or the steps before
    #[arg(long, value_enum, default_value_t = Mode::Macro)]
    mode: Mode,
    /// Where checksums and codecs are computed [default: as the device chooses]
    #[arg(long, value_enum)]
    placement: Option<Where>,
    /// Print the micro-ops, and run nothing
    #[arg(long)]
    explain: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// `NAME=FILE`.
#[derive(Clone, Debug)]
struct Binding {
    name: String,
    file: PathBuf,
}

/// Parts bytes at the first `at`; what is in front is text, what is behind the name of a file.
fn part(text: &OsStr, at: u8) -> Option<(&str, &OsStr)> {
    let bytes = text.as_bytes();
    let cut = bytes.iter().position(|b| *b == at)?;
    let name = std::str::from_utf8(&bytes[..cut]).ok()?;
    let rest = OsStr::from_bytes(&bytes[cut + 1..]);
    (!name.is_empty() && !rest.is_empty()).then_some((name, rest))
}

impl Binding {
    fn of(text: &OsStr) -> Result<Binding, String> {
        let (name, file) =
            part(text, b'=').ok_or_else(|| format!("'{}' is not of the form NAME=FILE", text.display()))?;
        Ok(Binding { name: name.trim_start_matches('@').to_owned(), file: file.into() })
    }
}

/// `NAME=KIND:FILE`. What is in the file is never shown: no message, log or explanation has more than the name.
#[derive(Clone, Debug)]
struct KeyFile {
    name: String,
    kind: KeyKind,
    file: PathBuf,
}

impl KeyFile {
    fn of(text: &OsStr) -> Result<KeyFile, String> {
        let text_is = text.display();
        let form = || format!("'{text_is}' is not of the form NAME=KIND:FILE, KIND xts128, xts256, gcm128 or gcm256");
        let (name, rest) = part(text, b'=').ok_or_else(form)?;
        let (kind, file) = part(rest, b':').ok_or_else(form)?;
        let kind = match kind {
            "xts128" => KeyKind::Xts128,
            "xts256" => KeyKind::Xts256,
            "gcm128" => KeyKind::Gcm128,
            "gcm256" => KeyKind::Gcm256,
            _ => return Err(form()),
        };
        Ok(KeyFile { name: name.to_owned(), kind, file: file.into() })
    }

    /// Gives the key to the device.
    fn give(&self, client: &Client) -> Result<Key, Failure> {
        let mut bytes = std::fs::read(&self.file).doing("read", &self.file)?;
        let wanted = self.kind.bytes() as usize;
        let digits = bytes.trim_ascii();
        if bytes.len() != wanted && digits.len() == 2 * wanted {
            let digit = |b: &u8| char::from(*b).to_digit(16).map(|n| n as u8);
            let pair = |pair: &[u8]| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?);
            if let Some(decoded) = digits.chunks_exact(2).map(pair).collect::<Option<Vec<u8>>>() {
                bytes.fill(0);
                bytes = decoded;
            }
        }
        if bytes.len() != wanted {
            let file = self.file.display();
            return Err(Failure::usage(format!(
                "{file}: this kind of key has {wanted} bytes, or {} digits",
                2 * wanted
            )));
        }
        let key = client.key(self.kind, &bytes).doing("give a key to", "the device");
        bytes.fill(0);
        std::hint::black_box(&bytes);
        key
    }
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Before the command ends
    Durable,
    /// Later, or with the next durable command
    Volatile,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Mode {
    /// All or nothing
    Macro,
    /// Each micro-op commits by itself
    Micro,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Where {
    /// On the device's cores
    Device,
    /// In an FPGA slot; a step that no kernel computes is refused
    Slot,
    /// In an FPGA slot, and on a core what no slot can or what one has lost
    SlotOrCore,
}

impl Where {
    fn placement(self) -> Placement {
        match self {
            Where::Device => Placement::Device,
            Where::Slot => Placement::Slot,
            Where::SlotOrCore => Placement::SlotOrCore,
        }
    }
}

/// Parses, and runs or explains.
pub fn run(args: &Args) -> Outcome {
    let source = source(args)?;
    let inputs = args.input.iter().map(read_input).collect::<Result<Vec<_>, _>>()?;
    let lengths: Vec<(&str, u32)> =
        args.input.iter().zip(&inputs).map(|(b, bytes)| (b.name.as_str(), bytes.len() as u32)).collect();
    let parse = |names: &[u64]| {
        let keys: Vec<(&str, u64)> = args.key.iter().map(|k| k.name.as_str()).zip(names.iter().copied()).collect();
        text::parse_counting(&source, &lengths, &keys).map_err(|e| Failure::usage(e.to_string()))
    };
    // Before there is a session, keys are numbered as they stand in the command line.
    let numbers: Vec<u64> = (1..).take(args.key.len()).collect();
    let mut parsed = parse(&numbers)?;
    if args.explain {
        return explain(args, &parsed);
    }
    let mut rooms = operands(args, &parsed, &inputs)?;
    let device = device::open(&args.image, Want::Write)?;
    let keys = args.key.iter().map(|key| key.give(device.client())).collect::<Result<Vec<Key>, _>>()?;
    if !keys.is_empty() {
        parsed = parse(&keys.iter().map(Key::name).collect::<Vec<_>>())?;
    }
    let durability = if args.durability == When::Durable { Durability::Durable } else { Durability::Volatile };
    let mode = match args.mode {
        Mode::Macro => TxnMode::Macro,
        Mode::Micro => TxnMode::Micro,
    };
    let placement = args.placement.map_or(Placement::Auto, Where::placement);
    let raw = device.client().raw().durability(durability).mode(mode).placement(placement);
    let mut operands: Vec<Operand<'_>> = rooms.iter_mut().map(Bound::operand).collect();
    let told =
        |errno: Errno| kernels::device_ends(device.client(), errno).map_or_else(|| errno.into(), std::io::Error::other);
    let ran = raw.program(&parsed.body, &mut operands, |cqe, i| filled(&parsed, cqe, i)).map_err(told);
    let cqe = ran.doing("run it in", &args.image)?;
    drop(operands);
    drop(keys);
    let hostdir = device.client().info().is_ok_and(|info| info.medium == weldfs_ciscops::attach::medium::HOSTDIR);
    let because = because(device.client(), parsed.body.program(), &cqe);
    device.close()?;
    if cqe.status == Errno::OPNOTSUPP.0 && mode == TxnMode::Macro && hostdir {
        let image = args.image.display();
        return Err(Failure::new(format!("{image}: a directory of the host takes nothing back; say --mode micro")));
    }
    report(args, &parsed, &cqe, &rooms, because)
}

fn source(args: &Args) -> Result<String, Failure> {
    match (&args.text, &args.file) {
        (Some(text), _) => Ok(text.clone()),
        (None, Some(file)) if file == Path::new("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).doing("read", "stdin")?;
            Ok(text)
        }
        (None, Some(file)) => std::fs::read_to_string(file).doing("read", file),
        (None, None) => Err(Failure::usage("there is no program: give its text, or -f FILE")),
    }
}

fn read_input(binding: &Binding) -> Result<Vec<u8>, Failure> {
    let bytes = std::fs::read(&binding.file).doing("read", &binding.file)?;
    let max = weldfs_ciscops::limits::ATOMIC_WRITE_MAX as usize;
    if bytes.len() > max {
        let file = binding.file.display();
        return Err(Failure::new(format!("{file}: {} bytes; an input has at most {max}", bytes.len())));
    }
    Ok(bytes)
}

/// A pool range of the program, and what the command line binds it to.
enum Bound<'a> {
    In(&'a [u8]),
    Out { bytes: Vec<u8>, to: &'a Binding },
}

impl Bound<'_> {
    fn operand(&mut self) -> Operand<'_> {
        match self {
            Bound::In(bytes) => Operand::In((*bytes).into()),
            Bound::Out { bytes, .. } => Operand::Out(bytes.into()),
        }
    }
}

fn operands<'a>(args: &'a Args, parsed: &Parsed, inputs: &'a [Vec<u8>]) -> Result<Vec<Bound<'a>>, Failure> {
    let ranges = &parsed.ranges;
    let stray = args.input.iter().chain(&args.output).find(|b| !ranges.iter().any(|r| r.name == b.name));
    if let Some(b) = stray {
        return Err(Failure::usage(format!("the program has no @{}", b.name)));
    }
    let bind = |range: &text::Range| {
        let input = args.input.iter().position(|b| b.name == range.name);
        let output = args.output.iter().find(|b| b.name == range.name);
        match (input.and_then(|i| inputs.get(i)), output) {
            (Some(_), Some(_)) => Err(Failure::usage(format!("@{} is an input and an output", range.name))),
            (Some(_), None) if parsed.body.is_output(range.pool) => {
                Err(Failure::usage(format!("the program puts bytes in @{}: say --output", range.name)))
            }
            (None, Some(_)) if parsed.body.is_input(range.pool) => {
                Err(Failure::usage(format!("the program takes bytes from @{}: say --input", range.name)))
            }
            (Some(bytes), None) => Ok(Bound::In(bytes)),
            (None, Some(to)) => Ok(Bound::Out { bytes: vec![0; parsed.body.pool_len(range.pool) as usize], to }),
            (None, None) => {
                let option = if parsed.body.is_output(range.pool) { "--output" } else { "--input" };
                Err(Failure::usage(format!("what is @{0}? say {option} {0}=FILE", range.name)))
            }
        }
    };
    ranges.iter().map(|range| known_length(parsed, range).and_then(|()| bind(range))).collect()
}

/// Whether it is reported how many bytes the program puts in a range: what is not would come out with zeros behind it.
fn known_length(parsed: &Parsed, range: &text::Range) -> Result<(), Failure> {
    let program = parsed.body.program();
    let in_part = program.micros().iter().any(|m| m.fills_in_part(range.pool).is_some());
    if !in_part || range.count.is_some_and(|count| program.results().contains(&Some(count))) {
        return Ok(());
    }
    let name = &range.name;
    Err(Failure::usage(format!(
        "how many bytes the program puts in @{name} would not be known: let it `count -> n` them and say `result n`, \
         or read them with `whole`"
    )))
}

/// Bytes that the program put in a range: as many as a reported register counts, else the whole of it.
fn filled(parsed: &Parsed, cqe: &Cqe, range: usize) -> usize {
    let len = parsed.body.pool_len(Pool(range as u8)) as usize;
    let count = parsed.ranges.get(range).and_then(|r| r.count);
    let [first, second] = parsed.body.program().results();
    match count {
        Some(_) if count == first => len.min(cqe.result as usize),
        Some(_) if count == second => len.min(cqe.result2 as usize),
        _ => len,
    }
}

fn explain(args: &Args, parsed: &Parsed) -> Outcome {
    let program = parsed.body.program();
    if args.json {
        let micros: Vec<String> = program.micros().iter().map(|m| text::statement(program, m)).collect();
        let (scratch, writes) = (program.scratch_bytes(), program.write_bytes());
        output::json(&json!({ "micro_ops": micros, "scratch_bytes": scratch, "write_bytes": writes }))?;
        return Ok(0);
    }
    output::facts(|out| {
        writeln!(out, "# {} micro-ops; body {} bytes", program.micros().len(), parsed.body.len())?;
        writeln!(out, "# at most {} bytes of device memory", program.scratch_bytes())?;
        writeln!(out, "# at most {} bytes written to files", program.write_bytes())?;
        for (name, r) in &parsed.registers {
            writeln!(out, "# r{} is {name}", r.0)?;
        }
        for range in &parsed.ranges {
            writeln!(out, "# @p{} is @{}", range.pool.0, range.name)?;
        }
        out.write_all(text::print(program).as_bytes())
    })?;
    Ok(0)
}

/// What the completion reports, by the names of the text.
fn results(parsed: &Parsed, cqe: &Cqe) -> Vec<(String, u64)> {
    let values = [cqe.result, cqe.result2];
    let name = |r| parsed.registers.iter().find(|(_, n)| *n == r).map(|(name, _)| name.clone());
    let results = parsed.body.program().results().into_iter().zip(values);
    results.filter_map(|(r, v)| r.and_then(name).map(|name| (name, v))).collect()
}

fn report(args: &Args, parsed: &Parsed, cqe: &Cqe, rooms: &[Bound<'_>], because: Option<String>) -> Outcome {
    let program = parsed.body.program();
    let mut outputs = Map::new();
    for (i, room) in rooms.iter().enumerate() {
        let Bound::Out { bytes, to } = room else { continue };
        let n = filled(parsed, cqe, i);
        if cqe.status == 0 {
            put(to, &bytes[..n])?;
            outputs.insert(to.name.clone(), n.into());
        }
    }
    let results = results(parsed, cqe);
    let errno = Errno(cqe.status);
    if args.json {
        let registers: Map<String, Value> = results.into_iter().map(|(name, v)| (name, v.into())).collect();
        let name = (cqe.status != 0).then(|| errno.name());
        output::even_unread(output::json(&json!({
            "status": cqe.status,
            "errno": name,
            "micro_ops": program.micros().len(),
            "micro_done": cqe.micro_done,
            "micro_failed": cqe.micro_failed,
            "registers": registers,
            "outputs": outputs,
        })))?;
        return if cqe.status == 0 { Ok(0) } else { Err(failure(program, cqe, errno, because)) };
    }
    // Facts share stdout with an output that goes there: then they are left out.
    let crowded = args.output.iter().any(|b| b.file == Path::new("-"));
    if cqe.status == 0 && !crowded {
        output::even_unread(output::facts(|out| {
            writeln!(out, "{} of {} micro-ops", cqe.micro_done, program.micros().len())?;
            results.iter().try_for_each(|(name, v)| writeln!(out, "{name} = {v} ({v:#x})"))
        }))?;
    }
    if cqe.status == 0 { Ok(0) } else { Err(failure(program, cqe, errno, because)) }
}

/// The micro-op that failed.
fn failed<'p>(program: &'p Program, cqe: &Cqe) -> Option<&'p Micro> {
    program.micros().get(usize::from(cqe.micro_failed.checked_sub(1)?))
}

/// More than the errno says of a program that failed: what a kernel has against its packet, and what is pinned.
fn because(client: &Client, program: &Program, cqe: &Cqe) -> Option<String> {
    let errno = Errno(cqe.status);
    if cqe.status != 0
        && let Some(why) = kernels::device_ends(client, errno)
    {
        return Some(why);
    }
    match failed(program, cqe)? {
        Micro::Kernel { buf, name, params, .. } => {
            let kernel = std::str::from_utf8(program.string(*name)).ok()?;
            if errno == Errno::TOOBIG {
                let room = program.capacity(*buf);
                return Some(format!("kernel {kernel} makes more than the {room} bytes that the buffer has room for"));
            }
            let used = Use { called: "kernel", kernel, params: program.string(*params).len() / 4 };
            kernels::why(client, &used, errno)
        }
        _ if errno == Errno::TXTBSY => Some(kernels::PINNED.into()),
        _ => None,
    }
}

fn failure(program: &Program, cqe: &Cqe, errno: Errno, because: Option<String>) -> Failure {
    let what = failed(program, cqe).map_or(String::new(), |m| text::statement(program, m));
    let why = because.unwrap_or_else(|| errno.to_string());
    Failure::new(format!("micro-op {} ({what}): {why}", cqe.micro_failed))
}

fn put(to: &Binding, bytes: &[u8]) -> Result<(), Failure> {
    if to.file == Path::new("-") {
        return output::even_unread(output::facts(|out| out.write_all(bytes)));
    }
    std::fs::write(&to.file, bytes).doing("write", &to.file)
}
