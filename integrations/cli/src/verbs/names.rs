//! `weldfs mkdir`, `mv`: verbs that change names only. They return when the change is durable.

use crate::device;
use crate::failure::{Doing, Outcome};
use crate::place::{Place, one_image};
use weldfs::RenameFlags;

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
    for place in &args.places {
        let made = if args.parents { client.create_dir_all(&place.path) } else { client.create_dir(&place.path) };
        made.doing("make directory", place.to_string())?;
    }
    device.finish()
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
        return Err(crate::failure::Failure::usage(sentence));
    }
    let flags = if args.no_clobber { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
    for from in &args.from {
        let to = match from.path.file_name() {
            Some(name) if into_dir => args.to.join(name),
            _ => args.to.clone(),
        };
        let moved = client.rename_with(&from.path, &to.path, flags);
        moved.doing(&format!("move {from} to"), to.to_string())?;
    }
    device.finish()
}
