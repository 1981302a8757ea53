//! `weldfs ln`: more names for files of an image, and symbolic links.

use crate::device;
use crate::failure::{Failure, Outcome, reason};
use crate::output::{each, exit_code};
use crate::place::{Place, one_image};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weldfs::{Client, Handle};

/// Arguments of `weldfs ln`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  weldfs ln disk.img:/a disk.img:/b          a second name for the file /a\n  \
weldfs ln -s ../lib/x disk.img:/bin/x      a symbolic link that says ../lib/x")]
pub struct Args {
    /// The files, IMAGE:/path; with -s what the links say, as it is
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<OsString>,
    /// The new name, or a directory to put the new names in
    #[arg(value_name = "IMAGE:/link")]
    link: Place,
    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,
    /// Replace what has the name, in one step
    #[arg(short, long)]
    force: bool,
    /// A new name that is a symbolic link to a directory is replaced, not gone into
    #[arg(short = 'n', long)]
    no_dereference: bool,
    /// Of a target that is a symbolic link: a name for what it leads to
    #[arg(short = 'L', long, conflicts_with = "symbolic")]
    logical: bool,
}

/// What a new name is for.
enum Target {
    File(PathBuf),
    Text(PathBuf),
}

/// Links.
pub fn run(args: &Args) -> Outcome {
    let targets = targets(args)?;
    let device = device::open(&args.link.image, device::Want::Write)?;
    let client = device.client();
    let link = &args.link.path;
    let found = if args.no_dereference { client.symlink_metadata(link) } else { client.metadata(link) };
    let into_dir = found.is_ok_and(|meta| meta.is_dir());
    if targets.len() > 1 && !into_dir {
        let sentence = format!("{} is not a directory, so only one link can be made there", args.link);
        return Err(Failure::usage(sentence));
    }
    let failed = each(&targets, |target| {
        let (Target::File(path) | Target::Text(path)) = target;
        let name = match path.file_name() {
            Some(name) if into_dir => args.link.join(name),
            _ => args.link.clone(),
        };
        make(client, args, target, &name.path).map_err(|e| not_made(client, target, &name, &e))
    })?;
    device.finish()?;
    Ok(exit_code(failed))
}

fn targets(args: &Args) -> Result<Vec<Target>, Failure> {
    if args.symbolic {
        return Ok(args.targets.iter().map(|text| Target::Text(text.into())).collect());
    }
    let places: Vec<Place> =
        args.targets.iter().map(|text| Place::of(text).map_err(Failure::usage)).collect::<Result<_, _>>()?;
    one_image(places.iter().chain([&args.link]))?;
    Ok(places.into_iter().map(|place| Target::File(place.path)).collect())
}

fn not_made(client: &Client, target: &Target, name: &Place, e: &io::Error) -> Failure {
    let dir = |path: &PathBuf| client.metadata(path).is_ok_and(|meta| meta.is_dir());
    let why = match target {
        Target::File(path) if e.kind() == io::ErrorKind::PermissionDenied && dir(path) => {
            format!("{} is a directory, which has one name only (-s makes a symbolic link)", path.display())
        }
        _ => reason(e),
    };
    Failure::new(format!("cannot make link {name}: {why}"))
}

fn make(client: &Client, args: &Args, target: &Target, name: &Path) -> io::Result<()> {
    match link(client, args, target, name) {
        Err(e) if args.force && e.kind() == io::ErrorKind::AlreadyExists => replace(client, args, target, name),
        done => done,
    }
}

fn link(client: &Client, args: &Args, target: &Target, name: &Path) -> io::Result<()> {
    match target {
        Target::Text(text) => client.symlink(text, name),
        Target::File(path) => {
            let (path, name) = (path.as_os_str().as_bytes(), name.as_os_str().as_bytes());
            Ok(client.raw().linkat(Handle::ROOT, path, Handle::ROOT, name, args.logical)?)
        }
    }
}

/// Makes the link under a name of its own beside the one that is taken, and renames it there: at each moment the name
/// is the old thing or the new one.
fn replace(client: &Client, args: &Args, target: &Target, name: &Path) -> io::Result<()> {
    if client.symlink_metadata(name)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if let Target::File(path) = target {
        let found = if args.logical { client.metadata(path)? } else { client.symlink_metadata(path)? };
        if found.ino() == client.symlink_metadata(name)?.ino() {
            // Two names of one file: renaming would do nothing and leave a third.
            return Ok(());
        }
    }
    let dir = name.parent().unwrap_or(Path::new("/"));
    let mut n = 0u32;
    loop {
        let beside = dir.join(OsStr::new(&format!(".weldfs-ln-{}-{n}", std::process::id())));
        match link(client, args, target, &beside) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < 1000 => n += 1,
            Err(e) => return Err(e),
            Ok(()) => {
                let renamed = client.rename(&beside, name);
                if renamed.is_err() {
                    let _ = client.remove_file(&beside);
                }
                return renamed;
            }
        }
    }
}
