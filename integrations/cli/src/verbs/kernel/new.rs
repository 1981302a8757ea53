//! `weldfs kernel new`: a folder with a kernel that works. Everything in it comes out of this program.

use super::build::Kind;
use crate::failure::{Doing, Failure, Outcome};
use crate::output;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Arguments of `weldfs kernel new`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The kernel makes ASCII letters upper or lower case. README.md in the folder says what each file is\n\
for, and what to install.\n\n\
Examples:\n  weldfs kernel new shout --rtl\n  weldfs kernel new keep --rtl --dram\n  \
weldfs kernel new shout --rust --dir ~/kernels"
)]
pub struct Args {
    /// Its name: 1 to 31 of a-z, 0-9 and -, beginning with a letter
    name: String,
    #[command(flatten)]
    language: Language,
    /// With --rtl: one that uses the card's memory, by the ports q_* and a_*
    #[arg(long, requires = "rtl")]
    dram: bool,
    /// Where the folder NAME is made; by default here
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print as JSON what was made
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Language {
    /// In Verilog, simulated cycle by cycle (needs verilator, make, a C++ compiler)
    #[arg(long)]
    rtl: bool,
    /// In C++ for high-level synthesis (needs make, a C++ compiler)
    #[arg(long)]
    hls: bool,
    /// In Rust, as software with a model of the hardware's time (needs make, cargo)
    #[arg(long)]
    rust: bool,
}

/// A file of the folder: where it is, what is in it, whether it can be executed.
struct File(&'static str, &'static [u8], bool);

macro_rules! file {
    ($at:literal, $template:literal) => {
        File($at, include_bytes!(concat!("templates/", $template)), false)
    };
}

/// What every kernel has.
const COMMON: [File; 7] = [
    file!("kernel.toml", "common/kernel.toml.in"),
    File("tests/reference", include_bytes!("templates/common/reference.in"), true),
    file!("tests/params", "common/params"),
    file!("tests/vectors/hello.params", "common/hello.params"),
    file!("tests/vectors/hello.in", "common/hello.in"),
    file!("tests/vectors/hello.out", "common/hello.out"),
    file!(".gitignore", "common/gitignore"),
];

const HEADER: &[u8] = include_bytes!("../../../../../fpga/include/weldfs_kernel.h");

const RTL: [File; 8] = [
    file!("Makefile", "rtl/Makefile.in"),
    file!("README.md", "rtl/README.md.in"),
    file!("rtl/@TOP@.v", "rtl/kernel.v.in"),
    File("rtl/weld_fifo.v", include_bytes!("../../../../../fpga/rtl/common/weld_fifo.v"), false),
    File("rtl/weld_params.v", include_bytes!("../../../../../fpga/rtl/common/weld_params.v"), false),
    File("harness/verilated.cpp", include_bytes!("../../../../../fpga/rtl/harness/verilated.cpp"), false),
    File("harness/exports.map", include_bytes!("../../../../../fpga/rtl/harness/exports.map"), false),
    File("harness/weldfs_kernel.h", HEADER, false),
];

/// The Verilog of a kernel that keeps its packet in the card's memory, and what its manifest says of that.
const DRAM: &[u8] = include_bytes!("templates/rtl/kernel_dram.v.in");
const DRAM_PORT: &str = "# The card's memory that it has, bytes: 16 MiB.\ndram_bytes = 16777216\n";

const HLS: [File; 8] = [
    file!("Makefile", "hls/Makefile.in"),
    file!("README.md", "hls/README.md.in"),
    file!("hls/@TOP@.cpp", "hls/kernel.cpp.in"),
    File("hls/weldfs_flits.h", include_bytes!("../../../../../fpga/hls/weldfs_flits.h"), false),
    File("hls/weldfs_hls.h", include_bytes!("../../../../../fpga/hls/weldfs_hls.h"), false),
    File("hls/weldfs_kernel.h", HEADER, false),
    File("sim/hls_stream.h", include_bytes!("../../../../../fpga/hls/sim/hls_stream.h"), false),
    file!("sim/ap_int.h", "hls/ap_int.h"),
];

const RUST: [File; 6] = [
    file!("Makefile", "rust/Makefile.in"),
    file!("README.md", "rust/README.md.in"),
    file!("Cargo.toml", "rust/Cargo.toml.in"),
    file!("src/lib.rs", "rust/lib.rs.in"),
    file!("src/abi.rs", "rust/abi.rs.in"),
    File("weldfs_kernel.h", HEADER, false),
];

impl Language {
    fn kind(&self) -> Kind {
        match (self.rtl, self.hls) {
            (true, _) => Kind::Rtl,
            (_, true) => Kind::Hls,
            _ => Kind::Model,
        }
    }
}

/// What was made.
#[derive(serde::Serialize)]
struct Made {
    name: String,
    path: String,
    kernel_id: String,
    backend: &'static str,
}

/// Makes the folder; nothing that is there is touched.
pub fn run(args: &Args) -> Outcome {
    let kind = args.language.kind();
    if !good(&args.name) {
        let rule = "a name has 1 to 31 of a-z, 0-9 and -, and begins with a letter";
        return Err(Failure::usage(format!("'{}': {rule}", args.name)));
    }
    let folder = args.dir.as_deref().unwrap_or(Path::new("")).join(&args.name);
    if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above).doing("make the folder", above)?;
    }
    fs::create_dir(&folder).doing("make the folder", &folder)?;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| Failure::new(format!("no random numbers for the kernel's id: {e}")))?;
    // Never all 0, which is no id.
    let id = format!("{:032x}", u128::from_ne_bytes(random) | 1);
    let (files, backend): (&[File], &str) = match kind {
        Kind::Rtl => (&RTL, include_str!("templates/rtl/backend.toml.in")),
        Kind::Hls => (&HLS, include_str!("templates/hls/backend.toml.in")),
        _ => (&RUST, include_str!("templates/rust/backend.toml.in")),
    };
    let top = format!("weld_{}", args.name.replace('-', "_"));
    // Each flit goes to memory and comes back.
    let (dram, cycles) = if args.dram { (DRAM_PORT, "2.0") } else { ("", "1.0") };
    let marks = [
        ("@BACKEND@\n", backend),
        ("@DRAM@\n", dram),
        ("@CYCLES@", cycles),
        ("@NAME@", &args.name),
        ("@TOP@", &top),
        ("@ID@", &id),
    ];
    let filled = |text: &str| marks.iter().fold(text.to_owned(), |text, (mark, with)| text.replace(mark, with));
    for File(at, content, executed) in COMMON.iter().chain(files) {
        let content = if args.dram && *at == "rtl/@TOP@.v" { &DRAM } else { content };
        let path = folder.join(filled(at));
        let above = path.parent().unwrap_or(&folder);
        fs::create_dir_all(above).doing("make the folder", above)?;
        let text =
            std::str::from_utf8(content).map_err(|_| Failure::new(format!("the template of {at} is no text")))?;
        let mode = if *executed { 0o777 } else { 0o666 };
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).doing("make", &path)?;
        std::io::Write::write_all(&mut file, filled(text).as_bytes()).doing("write", &path)?;
    }
    if args.json {
        let path = folder.display().to_string();
        output::json(&Made { name: args.name.clone(), path, kernel_id: id, backend: kind.name() })?;
        return Ok(0);
    }
    let shown = folder.display();
    output::facts(|out| {
        writeln!(out, "made {shown}; its README.md says what is in it\nnext: weldfs kernel test {shown}")
    })?;
    Ok(0)
}

/// As the manifest's rule, and a name that is also one of a crate and of a module.
fn good(name: &str) -> bool {
    name.len() <= 31
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.ends_with('-')
}
