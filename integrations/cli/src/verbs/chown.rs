//! `weldfs chown`: owner and group of files in an image.

use crate::device;
use crate::failure::{Doing, Outcome};
use crate::output::{each, exit_code, say};
use crate::place::{Place, one_image};
use crate::walk::{Walk, When};
use std::str::FromStr;
use weldfs::{Client, SetAttrBody, SetAttrMask};

/// Arguments of `weldfs chown`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "OWNER is USER, USER:GROUP, USER: (with the user's own group) or :GROUP; names are this machine's, \
                      numbers are\ntaken as they are. Only root may give files to others."
)]
pub struct Args {
    /// Who is to own them
    owner: Owner,
    /// Files and directories
    #[arg(value_name = "IMAGE:/path", required = true)]
    places: Vec<Place>,
    /// Everything in directories, too; links in them are changed themselves
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change a symbolic link that is named, not what it leads to
    #[arg(long)]
    no_dereference: bool,
}

/// What is to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

/// A user of this machine by name, or any by number; with the group, where it is known.
pub fn user(text: &str) -> Result<(u32, Option<u32>), String> {
    match (uzers::get_user_by_name(text), text.parse::<u32>()) {
        (Some(user), _) => Ok((user.uid(), Some(user.primary_group_id()))),
        // (uid_t)-1 means "leave it" to the system.
        (None, Ok(uid)) if uid != u32::MAX => {
            Ok((uid, uzers::get_user_by_uid(uid).map(|user| user.primary_group_id())))
        }
        _ => Err(format!("there is no user '{text}' on this machine, and it is no number")),
    }
}

/// A group of this machine by name, or any by number.
pub fn group(text: &str) -> Result<u32, String> {
    match (uzers::get_group_by_name(text), text.parse::<u32>()) {
        (Some(group), _) => Ok(group.gid()),
        (None, Ok(gid)) if gid != u32::MAX => Ok(gid),
        _ => Err(format!("there is no group '{text}' on this machine, and it is no number")),
    }
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Owner, String> {
        match text.split_once(':') {
            None if text.is_empty() => Err("no owner is named".to_owned()),
            None => Ok(Owner { uid: Some(user(text)?.0), gid: None }),
            Some(("", "")) => Err("neither a user nor a group is named".to_owned()),
            Some(("", name)) => Ok(Owner { uid: None, gid: Some(group(name)?) }),
            Some((name, "")) => {
                let (uid, own) = user(name)?;
                let gid = own.ok_or_else(|| format!("user {name} has no group on this machine: say {name}:GROUP"))?;
                Ok(Owner { uid: Some(uid), gid: Some(gid) })
            }
            Some((name, of)) => Ok(Owner { uid: Some(user(name)?.0), gid: Some(group(of)?) }),
        }
    }
}

/// Changes.
pub fn run(args: &Args) -> Outcome {
    let image = one_image(&args.places)?;
    let device = device::open(&image, device::Want::Write)?;
    let client = device.client();
    let mut misses = 0;
    let failed = each(&args.places, |place| {
        let mut walk = Walk::new(client, &image);
        let done = walk.tree(&place.path, !args.no_dereference, &mut |when, step| {
            if when == When::Found {
                let at = Place { image: image.clone(), path: step.path.to_owned() };
                let nofollow = args.no_dereference || step.depth > 0;
                if let Err(failure) =
                    set(client, &at, args.owner, nofollow).doing("change the owner of", at.to_string())
                {
                    say!("weldfs: {failure}");
                    misses += 1;
                }
            }
            Ok(args.recursive)
        });
        misses += walk.failed;
        done
    })?;
    device.finish()?;
    Ok(exit_code(failed + misses))
}

fn set(client: &Client, at: &Place, owner: Owner, nofollow: bool) -> std::io::Result<()> {
    let mut mask = SetAttrMask::empty();
    mask.set(SetAttrMask::UID, owner.uid.is_some());
    mask.set(SetAttrMask::GID, owner.gid.is_some());
    let (uid, gid) = (owner.uid.unwrap_or_default(), owner.gid.unwrap_or_default());
    client.set_attributes(&at.path, nofollow, &SetAttrBody { mask: mask.bits(), uid, gid, ..SetAttrBody::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_and_numbers() {
        let of = |text: &str| text.parse::<Owner>();
        assert_eq!(of("1234"), Ok(Owner { uid: Some(1234), gid: None }));
        assert_eq!(of("1234:5678"), Ok(Owner { uid: Some(1234), gid: Some(5678) }));
        assert_eq!(of(":5678"), Ok(Owner { uid: None, gid: Some(5678) }));
        assert_eq!(of("root:"), Ok(Owner { uid: Some(0), gid: Some(0) }));
        assert_eq!(of("root:root"), Ok(Owner { uid: Some(0), gid: Some(0) }));
        for bad in ["", ":", "no such user", "-1", "4294967295", "0:no such group"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
