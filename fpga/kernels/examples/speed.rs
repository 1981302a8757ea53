//! How fast the models are on one core, beside the tools that do the same, in one run:
//!
//! ```text
//! cargo run --release -p weldfs-kernels --example speed [MiB of input, default 64]
//! ```
//!
//! Rates are bytes of input (decompressing and expanding: of output) per second of processor time, in 10^9 bytes; of
//! rounds that alternate between kernel and peer the fastest, because other processes only ever take time away. With a
//! peer both read the same file from the page cache. A tool's time has its start in it, and is that of its first
//! thread.
#![allow(clippy::unwrap_used)] // a measurement that cannot go on has failed

use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use weldfs_fpga::kernel::Kernel;

/// Bytes that a kernel is given at once, and room for its output.
const PIECE: usize = 256 << 10;
const ROUNDS: usize = 7;

/// Seconds that this thread has run.
fn own() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Seconds that a process which has ended, and is not waited for yet, has run, by the scheduler's books.
fn of_ended(process: u32) -> Option<f64> {
    while !fs::read_to_string(format!("/proc/{process}/stat")).ok()?.contains(") Z ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let books = fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    Some(books.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

/// A kernel with its parameters.
struct Case {
    name: &'static str,
    params: Vec<u32>,
    input: Vec<u8>,
}

impl Case {
    fn kernel(&self) -> Box<dyn Kernel> {
        let mut kernel = (weldfs_kernels::find(self.name).unwrap().make)();
        kernel.reset(&self.params).unwrap();
        kernel
    }
}

/// Runs what `next` puts in a buffer through the kernel, until it puts nothing; the bytes that came out.
fn stream(kernel: &mut dyn Kernel, mut next: impl FnMut(&mut Vec<u8>)) -> usize {
    let (mut piece, mut out, mut made) = (Vec::new(), vec![0; PIECE], 0);
    loop {
        next(&mut piece);
        let mut at = 0;
        loop {
            let step = kernel.step(&piece[at..], piece.is_empty(), &mut out).unwrap();
            (at, made) = (at + step.taken, made + step.made);
            black_box(&out);
            if step.done {
                return made;
            }
            if at == piece.len() && step.made < out.len() && !piece.is_empty() {
                break;
            }
        }
    }
}

/// From memory, a packet: bytes out.
fn from_memory_untimed(kernel: &mut dyn Kernel, input: &[u8], out: &mut [u8]) -> usize {
    let (mut at, mut made) = (0, 0);
    loop {
        let end = input.len().min(at + PIECE);
        let step = kernel.step(&input[at..end], end == input.len(), out).unwrap();
        black_box(&out);
        (at, made) = (at + step.taken, made + step.made);
        if step.done {
            return made;
        }
    }
}

/// The same: (seconds, bytes out).
fn from_memory(kernel: &mut dyn Kernel, input: &[u8], out: &mut [u8]) -> (f64, usize) {
    let start = own();
    let made = from_memory_untimed(kernel, input, out);
    (own() - start, made)
}

/// From a file, as a tool reads it.
fn from_file(case: &Case, path: &Path) -> (f64, usize) {
    let mut kernel = case.kernel();
    let (start, mut file) = (own(), File::open(path).unwrap());
    let made = stream(kernel.as_mut(), |piece| {
        piece.resize(PIECE, 0);
        let n = file.read(piece).unwrap();
        piece.truncate(n);
    });
    (own() - start, made)
}

fn fastest(mut once: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(len).collect()
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
}

fn needle(text: &[u8]) -> Vec<u32> {
    let words = text.chunks(4).map(|c| c.iter().rev().fold(0, |word, b| word << 8 | u32::from(*b)));
    std::iter::once(text.len() as u32).chain(words).collect()
}

const WORDS: [&str; 12] =
    ["the", "drive", "reads", "a", "block", "of", "text", "and", "writes", "it", "again", "somewhere"];

/// Rows of words, the needle in one of two hundred.
fn text(random: &mut Random, len: usize) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < len {
        for _ in 0..random.below(16) + 4 {
            text.extend_from_slice(WORDS[random.below(12) as usize].as_bytes());
            text.push(b' ');
        }
        if random.below(200) == 0 {
            text.extend_from_slice(b"needle in a haystack");
        }
        text.push(b'\n');
    }
    text.truncate(len);
    text
}

/// Rows of an integer, a signed one, a fraction and a word.
fn table(random: &mut Random, len: usize) -> Vec<u8> {
    let mut table = Vec::new();
    while table.len() < len {
        let (id, balance) = (random.below(10_000_000), random.below(1 << 40) as i64 - (1 << 39));
        let (whole, parts, word) = (random.below(1000), random.below(1_000_000), WORDS[random.below(12) as usize]);
        table.extend_from_slice(format!("{id},{balance},{whole}.{parts:06},{word}\n").as_bytes());
    }
    let end = table[..len].iter().rposition(|b| *b == b'\n').unwrap();
    table.truncate(end + 1);
    table
}

fn scores(random: &mut Random, len: usize) -> Vec<u8> {
    let mut scores = random.bytes(len);
    for record in scores.chunks_exact_mut(32) {
        let year = random.below(100) as u8;
        record[30..].copy_from_slice(&[b'0' + year / 10, b'0' + year % 10]);
    }
    scores
}

fn pairs(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len / 14).flat_map(|_| [random.below(13) as u8 + 8, random.next() as u8]).collect()
}

fn cases(len: usize) -> Vec<Case> {
    let random = &mut Random(1);
    let words = text(random, len);
    let mut compressor = Case { name: "lz4", params: vec![0], input: words.clone() }.kernel();
    let (mut frame, mut at) = (Vec::new(), 0);
    stream_into(compressor.as_mut(), &words, &mut at, &mut frame);
    let letters: Vec<u8> = random.bytes(len).iter().map(|b| b'a' + b % 26).collect();
    let query = (0..8).map(|i| 0x6463_6261 + 0x0404_0404 * (i % 6));
    let field = 4 | 4 << 16 | 2 << 24;
    let case = |name, params: &[u32], input: &[u8]| Case { name, params: params.to_vec(), input: input.to_vec() };
    let bytes = random.bytes(len);
    vec![
        case("aes128", &[0, 1, 2, 3, 4], &bytes),
        case("aes128", &[1, 1, 2, 3, 4], &bytes),
        case("crc32c", &[], &bytes),
        case("grep", &needle(b"needle in a haystack"), &words),
        case("integrate", &[0, 1].into_iter().chain(query.clone()).collect::<Vec<_>>(), &letters),
        case("integrate", &[0, 32].into_iter().chain(query).collect::<Vec<_>>(), &letters),
        case("lz4", &[0], &words),
        case("lz4", &[1], &frame),
        case("parse", &[u32::from(b','), 4, 1, 2, 3, 4], &table(random, len)),
        case("pass-through", &[], &bytes),
        case("rle", &[], &pairs(random, len)),
        case("select", &[64, 1, field, 1 << 31, 0, 0, 2, 8 << 16, 16 | 8 << 16], &bytes),
        case("sql", &[20, 24], &scores(random, len)),
        case("sql", &[0, 49], &scores(random, len)),
        case("statistics", &[1024], &bytes),
        case("statistics", &[8], &bytes),
    ]
}

/// Kernels that compute more: on noise, but for gzip, which gets words as well.
fn computing(len: usize) -> Vec<Case> {
    let random = &mut Random(2);
    let case = |name, params: &[u32], input: &[u8]| Case { name, params: params.to_vec(), input: input.to_vec() };
    let (words, bytes) = (text(random, len), random.bytes(len));
    let constant = |first: &[u32], word: u32, n: usize| [first, &vec![word; n]].concat();
    let minus = u32::MAX;
    vec![
        case("convolve", &constant(&[5], 0x01fe_03fc, 512), &bytes),
        case("equalise", &[1920 * 1080], &bytes),
        case("gzip", &[0], &words),
        case("gzip", &[0], &bytes),
        case("knn", &constant(&[4096], 0x0102_0304, 1024), &bytes),
        // Nearly all of it trains; then nearly all of it is filtered, and passes.
        case("relief", &constant(&[0, len as u32 / 2048, len as u32 / 2048 - 1, 256], 7, 256), &bytes),
        case("relief", &constant(&[minus, 8, 8, 256], 7, 256), &bytes),
        case("smith-waterman", &[2, minus, minus], &bytes[..len / 32]),
        case("stencil", &[1920, 4, 1, 2, 1, 2, 4, 2, 1, 2, 1], &bytes),
    ]
}

fn stream_into(kernel: &mut dyn Kernel, input: &[u8], at: &mut usize, out: &mut Vec<u8>) {
    let mut room = vec![0; PIECE];
    loop {
        let step = kernel.step(&input[*at..], true, &mut room).unwrap();
        *at += step.taken;
        out.extend_from_slice(&room[..step.made]);
        if step.done {
            return;
        }
    }
}

/// A tool run on the file: seconds. Its output is read, since some do less when none is wanted. `None`: it is not
/// there.
fn tool(command: &[&str], path: &Path) -> Option<f64> {
    let mut tool = Command::new(command[0]);
    tool.args(&command[1..]).arg(path).env("LC_ALL", "C").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = tool.spawn().ok()?;
    let (mut pipe, mut room) = (child.stdout.take()?, vec![0; 1 << 20]);
    while pipe.read(&mut room).ok()? > 0 {}
    let seconds = of_ended(child.id())?;
    child.wait().ok()?.success().then_some(seconds)
}

/// What `openssl speed` says of buffers of so many bytes, in place: bytes a second; `None`: it is not there.
fn openssl_speed(decrypts: bool, bytes: usize) -> Option<f64> {
    let direction: &[&str] = if decrypts { &["-decrypt"] } else { &[] };
    let mut openssl = Command::new("openssl");
    openssl
        .args(["speed", "-mr", "-seconds", "1", "-bytes", &bytes.to_string(), "-evp", "aes-128-ecb"])
        .args(direction);
    let said = String::from_utf8(openssl.stderr(Stdio::null()).output().ok()?.stdout).ok()?;
    said.lines().find(|line| line.starts_with("+F:"))?.rsplit(':').next()?.parse().ok()
}

/// The reader of delimited text with SIMD, and the standard library's conversions.
fn simd_csv(path: &Path) -> Option<f64> {
    let start = own();
    let file = File::open(path).ok()?;
    let mut reader = simd_csv::ZeroCopyReaderBuilder::with_capacity(PIECE).has_headers(false).from_reader(file);
    let mut out = Vec::with_capacity(2 * PIECE);
    while let Some(record) = reader.read_byte_record().ok()? {
        let mut fields = record.iter();
        let mut field = || str::from_utf8(fields.next()?).ok();
        out.extend_from_slice(&field()?.parse::<u32>().ok()?.to_le_bytes());
        out.extend_from_slice(&field()?.parse::<i64>().ok()?.to_le_bytes());
        out.extend_from_slice(&field()?.parse::<f64>().ok()?.to_le_bytes());
        let (word, mut column) = (field()?.as_bytes(), [0; 16]);
        let n = word.len().min(16);
        column[..n].copy_from_slice(&word[..n]);
        out.extend_from_slice(&column);
        if out.len() > PIECE {
            black_box(&out);
            out.clear();
        }
    }
    Some(own() - start)
}

/// What does the same, on a file.
fn peers(name: &str, params: &[u32]) -> Vec<Vec<&'static str>> {
    let key = "01000000020000000300000004000000";
    let aes = ["openssl", "enc", "-aes-128-ecb", "-nopad", "-bufsize", "262144", "-K", key];
    match (name, params[..].first()) {
        ("aes128", Some(0)) => vec![[&aes[..], &["-e", "-in"]].concat()],
        ("aes128", _) => vec![[&aes[..], &["-d", "-in"]].concat()],
        ("grep", _) => vec![
            vec!["grep", "-F", "-n", "needle in a haystack"],
            vec!["grep", "-F", "-c", "needle in a haystack"],
            vec!["rg", "-F", "-n", "--column", "needle in a haystack"],
        ],
        ("gzip", _) => vec![vec!["gzip", "-1", "-c"]],
        ("lz4", Some(0)) => vec![vec!["lz4", "-q", "-1", "-B4", "-c"]],
        ("lz4", _) => vec![vec!["lz4", "-q", "-d", "-c"]],
        ("parse", _) => vec![vec!["simd-csv"]],
        ("pass-through", _) => vec![vec!["cat"]],
        _ => vec![],
    }
}

fn beside(case: &Case, path: &Path, counted: impl Fn(usize) -> f64) {
    fs::write(path, &case.input).unwrap();
    for command in peers(case.name, &case.params) {
        let (mut ours, mut theirs, mut out) = (f64::INFINITY, f64::INFINITY, 0);
        for _ in 0..ROUNDS {
            let seconds = if command == ["simd-csv"] { simd_csv(path) } else { tool(&command, path) };
            theirs = theirs.min(seconds.unwrap_or(f64::INFINITY));
            let (seconds, made) = from_file(case, path);
            (ours, out) = (ours.min(seconds), made);
        }
        let shown = if command[0] == "openssl" { command[..4].join(" ") } else { command.join(" ") };
        if theirs.is_finite() {
            let (bytes, ratio) = (counted(out), theirs / ours);
            println!("    {:>7.2} from a file; {shown}: {:.2}; ratio {ratio:.2}", bytes / ours, bytes / theirs);
        } else {
            println!("    skipped: {shown} is not there, or failed");
        }
    }
}

/// Packets that stay in the cache, as openssl measures itself.
fn beside_openssl(case: &Case, bytes: usize) {
    let Some(theirs) = openssl_speed(case.params[0] == 1, bytes) else {
        println!("    skipped: openssl is not there, or failed");
        return;
    };
    let packet = Case { name: case.name, params: case.params.clone(), input: case.input[..bytes].to_vec() };
    let (mut kernel, mut out) = (packet.kernel(), vec![1; PIECE]);
    // Looking at the clock takes a twentieth of the time of a packet: it is looked at once in a thousand.
    let mut thousand = || {
        let start = own();
        (0..1000).for_each(|_| _ = from_memory_untimed(kernel.as_mut(), &packet.input, &mut out));
        (own() - start) / 1000.0
    };
    let ours = bytes as f64 / fastest(&mut thousand);
    let (kib, ratio) = (bytes >> 10, ours / theirs);
    println!("    {:>7.2} of {kib} KiB; openssl speed: {:.2}; ratio {ratio:.2}", ours / 1e9, theirs / 1e9);
}

fn main() {
    let mib: usize = std::env::args().nth(1).map_or(64, |n| n.parse().expect("MiB of input"));
    let path = std::env::temp_dir().join(format!("weldfs-speed-{}", std::process::id()));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{mib} MiB of input; fastest of {ROUNDS} rounds; load {}", load.trim());
    println!("{:>14}  {:>7}  parameters", "kernel", "GB/s");
    for case in cases(mib << 20).into_iter().chain(computing(mib << 20)) {
        let expands = matches!((case.name, case.params.first()), ("rle", _) | ("lz4", Some(1)));
        let (mut kernel, mut room) = (case.kernel(), vec![1; PIECE]);
        let mut once = || from_memory(kernel.as_mut(), &case.input, &mut room);
        let out = once().1;
        let bytes = |made: usize| if expands { made } else { case.input.len() } as f64 / 1e9;
        let seconds = fastest(|| once().0);
        println!("{:>14}  {:>7.3}  {:?}", case.name, bytes(out) / seconds, &case.params[..case.params.len().min(9)]);
        if case.name == "aes128" {
            [16, 64].iter().for_each(|kib| beside_openssl(&case, kib << 10));
        }
        beside(&case, &path, bytes);
    }
    let _ = fs::remove_file(&path);
}
