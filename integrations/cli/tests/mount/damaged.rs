//! Directories of damaged images, as programs see them.

use crate::rig::{Place, ok, usable, weldfs};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

const NAMES: usize = 300;

/// An image whose directory `/d` has [`NAMES`] files, and where in it the pages of its trees are.
fn populated() -> (Place, Vec<u8>, Vec<usize>) {
    let place = Place::new("8M");
    let tree = place.path("d");
    fs::create_dir(&tree).unwrap();
    for i in 0..NAMES {
        fs::write(tree.join(format!("{i}-{}", "x".repeat(60))), b"content").unwrap();
    }
    ok(weldfs(["put"]).arg(&tree).arg(place.inside("/")));
    let bytes = fs::read(place.image()).unwrap();
    let pages: Vec<usize> = (0..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(b"WFpg")).collect();
    assert!(pages.len() > 8, "{} pages", pages.len());
    (place, bytes, pages)
}

/// Lists the directory with each page damaged; `look` gives what a program printed, or that it failed, or that it was
/// not started. How often it failed, once started: it never ends well with a name missing.
fn every_page(place: &Place, (bytes, pages): (&[u8], &[usize]), look: impl Fn(&Place) -> Output) -> usize {
    let names = |out: &Output| -> BTreeSet<String> {
        let said = String::from_utf8_lossy(&out.stdout);
        said.lines()
            .filter(|name| name.contains("-xx"))
            .map(|name| name.trim_start_matches("/weld/d/").into())
            .collect()
    };
    let whole = look(place);
    assert!(whole.status.success() && names(&whole).len() == NAMES, "{whole:?}");
    let mut failed = 0;
    for page in pages {
        let mut damaged = bytes.to_vec();
        damaged[page + 100] ^= 1;
        fs::write(place.image(), &damaged).unwrap();
        let out = look(place);
        if out.status.success() {
            assert_eq!(names(&out), names(&whole), "page at {page}: names are missing");
        } else {
            let said = String::from_utf8_lossy(&out.stderr);
            failed += usize::from(said.contains("nput/output error") && !said.starts_with("weldfs"));
        }
    }
    failed
}

#[test]
fn no_damaged_page_hides_a_name_from_a_program_under_the_preload_library() {
    let (place, bytes, pages) = populated();
    for program in [&["ls", "-a", "/weld/d"][..], &["find", "/weld/d"], &["python3", "-c", PYTHON]] {
        fs::write(place.image(), &bytes).unwrap();
        let failed = every_page(&place, (&bytes, &pages), |place| {
            let mut command = weldfs(["run", "--mount", "never", "--image"]);
            command.arg(place.image()).arg("--").args(program).current_dir("/").output().unwrap()
        });
        assert!(failed > 1, "{program:?}: {failed} of {}", pages.len());
    }
}

const PYTHON: &str = "import os\nprint(*os.listdir('/weld/d'), sep='\\n')";

#[test]
fn no_damaged_page_hides_a_name_from_a_program_on_a_mount() {
    if !usable("no_damaged_page_hides_a_name_from_a_program_on_a_mount") {
        return;
    }
    let (place, bytes, pages) = populated();
    let failed = every_page(&place, (&bytes, &pages), |place| {
        let mounted = weldfs(["mount"]).arg(place.image()).arg(place.root()).output().unwrap();
        if !mounted.status.success() {
            return mounted;
        }
        let out = Command::new("ls").arg("-a").arg(place.at("d")).output().unwrap();
        ok(weldfs(["umount"]).arg(place.root()));
        out
    });
    assert!(failed > 1, "{failed} of {}", pages.len());
}
