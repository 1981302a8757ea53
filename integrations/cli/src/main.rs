//! The `weldfs` command: one binary, one verb per file under `verbs/`.
//!
//! What lives here: parsing of arguments, the names under which mount(8) and fsck(8) call this program (`called`),
//! finding an image's device (`find`), reaching it (`device`), looking at one (`observe`) and at its kernels
//! (`kernels`), naming files inside images (`place`), copying trees (`tree`), the library that `run` hands out
//! (`preload`), printing facts (`output`), failing in one sentence (`failure`), memory (`allocator`). Verbs translate;
//! what files mean is decided in the device. Facts go to stdout, everything else to stderr. Exit codes: 0, 1 (failed),
//! 2 (usage); those of fsck(8) for `fsck` and `scrub`, and 4 for `info --log` of a corrupt log.
#![deny(unsafe_code)]
// These panic when a pipe is closed; `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[allow(unsafe_code)] // one call of the allocator's
mod allocator;
mod called;
mod dates;
mod device;
mod entry;
mod failure;
mod find;
mod interrupt;
mod kernels;
mod machine;
mod observe;
mod output;
mod place;
mod preload;
mod streams;
mod tree;
mod verbs;
mod walk;
mod words;

use clap::{Parser, Subcommand};
use failure::Outcome;
use output::say;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Package version, and the commit of a released build.
const VERSION: &str = env!("WELDFS_VERSION");

/// Files inside an in-storage file system. A path inside an image is IMAGE:/path.
#[derive(Parser, Debug)]
#[command(name = "weldfs", version = VERSION, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Make an image
    Mkfs(verbs::mkfs::Args),
    /// Run a device over an image until it is stopped
    Serve(Box<verbs::serve::Args>),
    /// Wait until a device answers
    Wait(verbs::wait::Args),
    /// End a device cleanly, and wait until it has ended
    Stop(verbs::stop::Args),
    /// List a directory of an image
    Ls(verbs::ls::Args),
    /// Print files of an image
    Cat(verbs::cat::Args),
    /// Copy files and trees into an image
    Put(verbs::copy::PutArgs),
    /// Copy files and trees out of an image
    Get(verbs::copy::GetArgs),
    /// Copy files and trees inside an image, between images, or either way
    Cp(verbs::copy::CpArgs),
    /// Remove names from an image
    Rm(verbs::rm::Args),
    /// Make directories in an image
    Mkdir(verbs::names::MkdirArgs),
    /// Rename inside an image
    Mv(verbs::names::MvArgs),
    /// Make links in an image
    Ln(verbs::ln::Args),
    /// Change permission bits in an image
    Chmod(verbs::chmod::Args),
    /// Change owners in an image
    Chown(verbs::chown::Args),
    /// Set the size of files in an image
    Truncate(verbs::truncate::Args),
    /// Make, list and remove virtual files of an image
    Virt(verbs::virt::Args),
    /// Find names in trees of an image
    Find(verbs::find::Args),
    /// Make changes durable
    Sync(verbs::sync::Args),
    /// Show the attributes of files in an image
    Stat(verbs::stat::Args),
    /// Show the space of images
    Df(verbs::df::Args),
    /// Show the space that files and trees take
    Du(verbs::du::Args),
    /// Show what an image is
    Info(verbs::info::Args),
    /// Check an image (read-only unless -y)
    Fsck(verbs::fsck::Args),
    /// Read everything an image holds and verify every checksum
    Scrub(verbs::scrub::Args),
    /// Show what a running device has counted
    Stats(verbs::stats::Args),
    /// Show a device's files at a directory, to every program
    Mount(verbs::mount::Args),
    /// End what `mount` began
    Umount(verbs::mount::UmountArgs),
    /// Run a program with its files in a device
    Run(verbs::run::Args),
    /// Run a sequence of file operations as one command inside a device
    Exec(verbs::exec::Args),
    /// List the tenants of a running device, or print a tenant's token
    Tenants(verbs::tenants::Args),
    /// Change settings of a running device, or list them
    Tune(verbs::tune::Args),
    /// Make, test and run compute kernels of your own
    Kernel(verbs::kernel::Args),
    /// Show who uses a running device, as it happens
    Top(verbs::top::Args),
    /// Record what runs on the cores and in the slots of a device, for Perfetto
    Trace(verbs::trace::Args),
    /// The whole story: load, fuse, kill, recover, compare
    Demo(verbs::demo::Args),
    /// Cut the power at every moment of short workloads, and check what is left
    Crash(verbs::crash::Args),
    /// Experiments
    Bench(verbs::bench::Args),
    /// Run one kernel for the process that started this
    #[command(hide = true)]
    KernelHost,
    /// Write man pages and shell completions, for packagers
    #[command(hide = true)]
    Generate(verbs::generate::Args),
}

fn dispatch(verb: &Verb) -> Outcome {
    match verb {
        Verb::Mkfs(args) => verbs::mkfs::run(args),
        Verb::Serve(args) => verbs::serve::run(args),
        Verb::Wait(args) => verbs::wait::run(args),
        Verb::Stop(args) => verbs::stop::run(args),
        Verb::Ls(args) => verbs::ls::run(args),
        Verb::Cat(args) => verbs::cat::run(args),
        Verb::Put(args) => verbs::copy::put(args),
        Verb::Get(args) => verbs::copy::get(args),
        Verb::Cp(args) => verbs::copy::cp(args),
        Verb::Rm(args) => verbs::rm::run(args),
        Verb::Mkdir(args) => verbs::names::mkdir(args),
        Verb::Mv(args) => verbs::names::mv(args),
        Verb::Ln(args) => verbs::ln::run(args),
        Verb::Chmod(args) => verbs::chmod::run(args),
        Verb::Chown(args) => verbs::chown::run(args),
        Verb::Truncate(args) => verbs::truncate::run(args),
        Verb::Virt(args) => verbs::virt::run(args),
        Verb::Find(args) => verbs::find::run(args),
        Verb::Sync(args) => verbs::sync::run(args),
        Verb::Stat(args) => verbs::stat::run(args),
        Verb::Df(args) => verbs::df::run(args),
        Verb::Du(args) => verbs::du::run(args),
        Verb::Info(args) => verbs::info::run(args),
        Verb::Fsck(args) => verbs::fsck::run(args),
        Verb::Scrub(args) => verbs::scrub::run(args),
        Verb::Stats(args) => verbs::stats::run(args),
        Verb::Mount(args) => verbs::mount::mount(args),
        Verb::Umount(args) => verbs::mount::umount(args),
        Verb::Run(args) => verbs::run::run(args),
        Verb::Exec(args) => verbs::exec::run(args),
        Verb::Tenants(args) => verbs::tenants::run(args),
        Verb::Tune(args) => verbs::tune::run(args),
        Verb::Kernel(args) => verbs::kernel::run(args),
        Verb::KernelHost => verbs::kernel_host::run(),
        Verb::Top(args) => verbs::top::run(args),
        Verb::Trace(args) => verbs::trace::run(args),
        Verb::Demo(args) => verbs::demo::run(args),
        Verb::Crash(args) => verbs::crash::run(args),
        Verb::Bench(args) => verbs::bench::run(args),
        Verb::Generate(args) => verbs::generate::run(args),
    }
}

/// Parses the command line. Verbs that check have fsck(8)'s code for a wrong one.
fn parse() -> Result<Cli, ExitCode> {
    let mut words = called::words(std::env::args_os().collect(), rustix::process::geteuid().is_root());
    let checks = words.get(1).is_some_and(|verb| verb == "fsck" || verb == "scrub");
    // `help` is what it helps with.
    if words.len() == 3 && words[1] == "help" && (words[2] == "--help" || words[2] == "-h") {
        words.pop();
    }
    Cli::try_parse_from(words).map_err(|e| {
        let _ = e.print();
        match (e.exit_code(), checks) {
            (0, _) => ExitCode::SUCCESS,
            (_, true) => ExitCode::from(16),
            (code, false) => ExitCode::from(code as u8),
        }
    })
}

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let filter = EnvFilter::try_from_env("WELDFS_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        // It would be said on the same stderr that could not be written to.
        .log_internal_errors(false)
        .init();
    match dispatch(&cli.verb) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.is_reader_gone() {
                say!("weldfs: {failure}");
            }
            ExitCode::from(failure.code)
        }
    }
}
