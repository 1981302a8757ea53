//! `weldfs rm`: removes names. What would remove the root, or the directory that something is named from, is refused
//! before anything is removed.

use crate::device;
use crate::failure::{Doing, Failure, Outcome};
use crate::output::{each, exit_code, say};
use crate::place::{Place, one_image};
use crate::walk::{Walk, When};
use std::os::unix::ffi::OsStrExt;
use weldfs::Client;

/// Arguments of `weldfs rm`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The root directory is never removed, nor what ends in '.' or '..'; then nothing else is, either."
)]
pub struct Args {
    /// What to remove
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    /// Remove directories with all they hold
    #[arg(short, long)]
    recursive: bool,
    /// A name that does not exist is no error
    #[arg(short, long)]
    force: bool,
}

/// Removes names; it returns when that is durable.
pub fn run(args: &Args) -> Outcome {
    args.places.iter().try_for_each(refuse_by_name)?;
    let device = device::open(&one_image(&args.places)?, device::Want::Write)?;
    args.places.iter().try_for_each(|place| refuse_root(device.client(), place))?;
    let failed = each(&args.places, |place| remove(device.client(), place, args))?;
    device.finish()?;
    Ok(exit_code(failed))
}

fn refused(place: &Place, why: &str) -> Failure {
    Failure::new(format!("refusing to remove {place}: {why}; nothing was removed"))
}

/// What is refused whatever is there: the root by its own name, and names that end in `.` or `..`.
fn refuse_by_name(place: &Place) -> Result<(), Failure> {
    let path = place.path.as_os_str().as_bytes();
    match path.split(|b| *b == b'/').rfind(|part| !part.is_empty()) {
        None => Err(refused(place, "it is the root directory")),
        Some(b"." | b"..") => Err(refused(place, "it ends in '.' or '..'")),
        Some(_) => Ok(()),
    }
}

/// The root by another name: links on the way, and a slash behind a link, lead there.
fn refuse_root(client: &Client, place: &Place) -> Result<(), Failure> {
    let root = client.metadata("/").doing("look at", place.to_string())?;
    let path = place.path.as_os_str().as_bytes();
    let plain = &path[..path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1)];
    let Ok(named) = client.symlink_metadata(std::ffi::OsStr::from_bytes(plain)) else { return Ok(()) };
    if named.is_symlink() && plain.len() < path.len() {
        return Err(refused(
            place,
            "it is a symbolic link with a slash behind it; without the slash the link is removed",
        ));
    }
    if named.is_dir() && named.ino() == root.ino() {
        return Err(refused(place, "it is the root directory"));
    }
    Ok(())
}

fn remove(client: &Client, place: &Place, args: &Args) -> Result<(), Failure> {
    if args.force && !client.exists(&place.path).doing("look at", place.to_string())? {
        return Ok(());
    }
    if !args.recursive {
        return client.remove_file(&place.path).doing("remove", place.to_string());
    }
    // What cannot be read or removed is named, and keeps nothing else from going.
    let (mut walk, mut failed) = (Walk::new(client, &place.image), 0);
    walk.tree(&place.path, false, &mut |when, step| {
        let gone = match (when, step.meta.is_dir()) {
            (When::Found, true) => return Ok(true),
            (When::Found, false) => client.remove_file(step.path),
            (When::Left, _) => client.remove_dir(step.path),
        };
        let errno = gone.as_ref().err().and_then(std::io::Error::raw_os_error);
        let of = Place { image: place.image.clone(), path: step.path.to_owned() };
        match (gone.doing("remove", of.to_string()), errno) {
            (Ok(()), _) => {}
            (Err(_), Some(libc::ENOENT)) if args.force => {}
            // Nothing else will go, either.
            (Err(failure), Some(libc::ENODEV | libc::EROFS)) => return Err(failure),
            // What keeps it has been named.
            (Err(_), Some(libc::ENOTEMPTY)) if failed > 0 => {}
            (Err(failure), _) => {
                say!("weldfs: {failure}");
                failed += 1;
            }
        }
        Ok(true)
    })?;
    match failed + walk.failed {
        0 => Ok(()),
        n => Err(Failure::new(format!("{place}: {n} things could not be read or removed"))),
    }
}
