//! The names under which mount(8), fsck(8) and mkfs(8) look for the programs of a file system: `mount.weldfs`,
//! `mount.fuse.weldfs`, `fsck.weldfs`, `mkfs.weldfs`. Each is this program; its arguments are those of the verb, in
//! these programs' order.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The command line as verbs have it. `root`: whether it is root's.
pub fn words(mut given: Vec<OsString>, root: bool) -> Vec<OsString> {
    let called = given.first().and_then(|name| Path::new(name).file_name()).map(OsStr::to_owned);
    let arguments = if given.is_empty() { Vec::new() } else { given.split_off(1) };
    let mut words = vec![OsString::from("weldfs")];
    match called.as_deref().and_then(OsStr::to_str) {
        // The second is what `mount -o remount` looks for, by the type that the list of mounts shows.
        Some("mount.weldfs" | "mount.fuse.weldfs") => {
            words.push("mount".into());
            words.extend(for_mount(arguments));
            if root {
                // As every file system that root mounts.
                words.push("--allow-other".into());
            }
        }
        Some("fsck.weldfs") => {
            words.push("fsck".into());
            words.extend(arguments.into_iter().filter_map(for_fsck));
        }
        Some("mkfs.weldfs") => {
            words.push("mkfs".into());
            words.extend(arguments.into_iter().filter(|word| word != "-V" && word != "-v"));
        }
        _ => return given.into_iter().chain(arguments).collect(),
    }
    words
}

/// mount(8) passes its own flags on, and a type: `SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`.
fn for_mount(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(word) = arguments.next() {
        match word.to_str() {
            Some("-t" | "-N") => drop(arguments.next()),
            Some(flags) if is_flags(flags, "snv") => {}
            _ => words.push(word),
        }
    }
    words
}

/// fsck(8) passes what to repair, and flags that mean nothing here: an image is always checked whole.
fn for_fsck(word: OsString) -> Option<OsString> {
    match word.to_str() {
        Some("-a" | "-p" | "-y") => Some("-y".into()),
        Some(flags) if is_flags(flags, "fvTMV") || flags.starts_with("-C") => None,
        _ => Some(word),
    }
}

fn is_flags(word: &str, letters: &str) -> bool {
    word.strip_prefix('-').is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| letters.contains(flag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, root: bool) -> String {
        let given = text.split(' ').map(OsString::from).collect();
        words(given, root).join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn what_mount_and_fsck_call() {
        let called = "/usr/sbin/mount.weldfs a.img /mnt -s -o rw,nofail -t weldfs";
        assert_eq!(line(called, true), "weldfs mount a.img /mnt -o rw,nofail --allow-other");
        assert_eq!(line("mount.weldfs a.img /mnt -nv", false), "weldfs mount a.img /mnt");
        assert_eq!(line("/sbin/fsck.weldfs -a -C0 -f a.img", true), "weldfs fsck -y a.img");
        assert_eq!(line("fsck.weldfs -n a.img", true), "weldfs fsck -n a.img");
        assert_eq!(line("mkfs.weldfs -V --size 1G a.img", true), "weldfs mkfs --size 1G a.img");
        assert_eq!(line("weldfs fsck -y a.img", true), "weldfs fsck -y a.img");
    }
}
