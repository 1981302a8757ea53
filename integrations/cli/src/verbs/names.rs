//! `weldfs mkdir`, `mv`: verbs that change names only. They return when the change is durable.

use crate::device;
use crate::failure::{Doing, Failure, Outcome, reason};
use crate::output::{each, exit_code};
use crate::place::{Place, one_image};
use weldfs::{Client, RenameFlags};

/// Arguments of `weldfs mkdir`.
#[derive(clap::Args, Debug)]
pub struct MkdirArgs {
    /// Directories to make
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    /// Make missing parents, too; an existing directory is no error
    #[arg(short, long)]
    parents: bool,
}

/// Makes directories.
pub fn mkdir(args: &MkdirArgs) -> Outcome {
    let device = device::open(&one_image(&args.places)?, device::Want::Write)?;
    let client = device.client();
    let failed = each(&args.places, |place| {
        let made = if args.parents { client.create_dir_all(&place.path) } else { client.create_dir(&place.path) };
        made.doing("make directory", place.to_string())
    })?;
    device.finish()?;
    Ok(exit_code(failed))
}

/// Arguments of `weldfs mv`.
#[derive(clap::Args, Debug)]
pub struct MvArgs {
    /// What to move
    #[arg(value_name = "IMAGE:/from", required = true)]
    from: Vec<Place>,
    /// Its new name, or the directory to put it in
    #[arg(value_name = "IMAGE:/to")]
    to: Place,
    /// Fail when the new name exists
    #[arg(short, long)]
    no_clobber: bool,
}

/// Renames.
pub fn mv(args: &MvArgs) -> Outcome {
    let device = device::open(&one_image(args.from.iter().chain([&args.to]))?, device::Want::Write)?;
    let client = device.client();
    let into_dir = client.metadata(&args.to.path).is_ok_and(|meta| meta.is_dir());
    if args.from.len() > 1 && !into_dir {
        let sentence = format!("{} is not a directory, so only one name can be moved there", args.to);
        return Err(Failure::usage(sentence));
    }
    let flags = if args.no_clobber { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
    let failed = each(&args.from, |from| {
        let to = match from.path.file_name() {
            Some(name) if into_dir => args.to.join(name),
            _ => args.to.clone(),
        };
        client.rename_with(&from.path, &to.path, flags).map_err(|e| not_moved(client, from, &to, &e))
    })?;
    device.finish()?;
    Ok(exit_code(failed))
}

fn not_moved(client: &Client, from: &Place, to: &Place, e: &std::io::Error) -> Failure {
    let is_dir = |place: &Place| client.symlink_metadata(&place.path).is_ok_and(|meta| meta.is_dir());
    let why = match e.kind() {
        // The one thing that rename(2) calls so.
        std::io::ErrorKind::InvalidInput if is_dir(from) => "that is itself, or inside it".to_owned(),
        _ => reason(e),
    };
    Failure::new(format!("cannot move {from} to {to}: {why}"))
}
