//! A carried library becomes a file, and only a sound file is believed; a name that ld.so would take apart gets a link.

#![allow(clippy::unwrap_used)]

use super::*;
use std::fs;
use std::os::unix::fs::MetadataExt;

const BYTES: &[u8] = b"\x7fELF and so on";

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_carried_library_is_written_once_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("cache/weldfs");
    let first = carried::put(BYTES, &place).unwrap();
    assert_eq!(fs::read(&first).unwrap(), BYTES);
    assert_eq!(first.metadata().unwrap().mode() & 0o777, 0o755);
    let inode = first.metadata().unwrap().ino();
    assert_eq!(carried::put(BYTES, &place).unwrap(), first);
    assert_eq!(first.metadata().unwrap().ino(), inode, "written again");
    let other = carried::put(b"another build", &place).unwrap();
    assert_ne!(other, first);
    assert_eq!(fs::read(&first).unwrap(), BYTES, "a build in use is left alone");
    assert_eq!(place.read_dir().unwrap().count(), 2, "no temporary file stays");
}

#[test]
fn a_kept_library_that_is_not_what_is_carried_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    mode(dir.path(), 0o700);
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, BYTES).unwrap();
    mode(&elsewhere, 0o755);
    let path = carried::put(BYTES, dir.path()).unwrap();
    let spoil: [&dyn Fn(); 6] = [
        &|| fs::write(&path, b"\x7fELF and so ON").unwrap(),
        &|| fs::write(&path, &BYTES[..5]).unwrap(),
        &|| fs::write(&path, b"\x7fELF and so on, and more").unwrap(),
        &|| mode(&path, 0o777),
        &|| mode(&path, 0o600),
        &|| {
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        },
    ];
    for (case, spoil) in spoil.iter().enumerate() {
        spoil();
        assert_eq!(carried::put(BYTES, dir.path()).unwrap(), path, "case {case}");
        let meta = path.symlink_metadata().unwrap();
        assert!(meta.is_file() && meta.mode() & 0o777 == 0o755, "case {case}");
        assert_eq!(fs::read(&path).unwrap(), BYTES, "case {case}");
    }
    assert_eq!(fs::read(&elsewhere).unwrap(), BYTES);
}

#[test]
fn a_place_that_others_can_write_to_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let (open, link, good) = (dir.path().join("open"), dir.path().join("link"), dir.path().join("good"));
    fs::create_dir(&open).unwrap();
    mode(&open, 0o777);
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    for bad in [&open, &link, &PathBuf::from("/proc/weldfs")] {
        assert!(carried::put(BYTES, bad).is_err(), "{}", bad.display());
    }
    let spaced = dir.path().join("a b");
    let library = Library::place(BYTES, &[open.clone(), link, spaced.clone(), good.clone()]).unwrap();
    assert!(library.path().starts_with(&good), "{library:?}");
    assert!(!spaced.exists(), "ld.so cannot load from there");
    // None will do: for this run only, and any user may read it.
    let library = Library::place(BYTES, &[open]).unwrap();
    let (path, folder) = (library.path().to_owned(), library.path().parent().unwrap().to_owned());
    assert_eq!(fs::read(&path).unwrap(), BYTES);
    assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o711);
    drop(library);
    assert!(!folder.exists());
}

#[test]
fn a_name_that_ld_so_would_take_apart_gets_a_link() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["with space", "with:colon", "with$dollar"] {
        let file = dir.path().join(name);
        fs::write(&file, BYTES).unwrap();
        let library = Library::at(file.clone()).unwrap();
        assert!(is_plain(library.path()), "{library:?}");
        assert_eq!(library.path().canonicalize().unwrap(), file);
    }
    let plain = dir.path().join("plain");
    fs::write(&plain, BYTES).unwrap();
    assert_eq!(Library::at(plain.clone()).unwrap().path(), plain);
}

#[test]
fn the_newest_library_near_the_program_counts_and_an_empty_file_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let (bin, deps, lib) = (dir.path().join("bin"), dir.path().join("bin/deps"), dir.path().join("lib/weldfs"));
    fs::create_dir_all(&deps).unwrap();
    fs::create_dir_all(&lib).unwrap();
    assert_eq!(near(&bin), None);
    fs::write(deps.join(LIBRARY), b"").unwrap();
    assert_eq!(near(&bin), None, "what cargo check leaves is no library");
    fs::write(lib.join(LIBRARY), BYTES).unwrap();
    assert_eq!(near(&bin).unwrap().canonicalize().unwrap(), lib.join(LIBRARY).canonicalize().unwrap());
    fs::write(deps.join(LIBRARY), BYTES).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::open(deps.join(LIBRARY)).unwrap().set_modified(later).unwrap();
    assert_eq!(near(&bin).unwrap(), deps.join(LIBRARY));
}
