//! `weldfs chmod`: permission bits of files in an image, in octal or by letters.

mod mode;

use crate::device;
use crate::failure::{Doing, Failure, Outcome};
use crate::output::{each, exit_code, say};
use crate::place::{Place, one_image};
use crate::walk::{Walk, When};
use mode::ModeChange;
use weldfs::Client;

/// Arguments of `weldfs chmod`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "MODE is octal (755, 4755), or letters as for chmod(1): [ugoa]*[-+=][rwxXst]*, several with commas \
                      (u+x, go-w,\na=rX). Symbolic links that are named are followed, those in trees left alone."
)]
pub struct Args {
    /// The bits, or how to change them
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: ModeChange,
    /// Files and directories
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    /// Everything in directories, too
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Changes.
pub fn run(args: &Args) -> Outcome {
    let image = one_image(&args.places)?;
    let device = device::open(&image, device::Want::Write)?;
    let client = device.client();
    let mut misses = 0;
    let failed = each(&args.places, |place| {
        let mut walk = Walk::new(client, &image);
        let done = walk.tree(&place.path, true, &mut |when, step| {
            let (is_dir, bits) = (step.meta.is_dir(), step.meta.permissions());
            let new = args.mode.apply(bits, is_dir);
            // What takes leave away does so after what is inside was reached, what gives it does so before.
            let now = if is_dir && args.recursive && new & 0o500 != 0o500 { When::Left } else { When::Found };
            if when == now && !(step.meta.is_symlink() && step.depth > 0) {
                misses += u64::from(!set(client, place, step.path, new));
            }
            Ok(args.recursive)
        });
        misses += walk.failed;
        done
    })?;
    device.finish()?;
    Ok(exit_code(failed + misses))
}

/// False when it could not be, which is said.
fn set(client: &Client, place: &Place, path: &std::path::Path, mode: u32) -> bool {
    let at = Place { image: place.image.clone(), path: path.to_owned() };
    let done: Result<(), Failure> = client.set_permissions(path, mode).doing("change the mode of", at.to_string());
    done.inspect_err(|failure| say!("weldfs: {failure}")).is_ok()
}
