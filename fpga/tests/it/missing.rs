//! What a kernel lacks is told before a slot is used for it; and why one was lost is told to its tenant alone.

use crate::process::{compile, folder, host};
use crate::rig::{add, card, config, wait, want};
use weldfs_fpga::card::Card;
use weldfs_fpga::config::CardConfig;
use weldfs_fpga::error::CardError;
use weldfs_fpga::manifest::{Kind, Manifest, PackageError};
use weldfs_fpga::package::{Catalogue, Package};
use weldfs_fpga::status::{SlotState, Unusable};

const TEXT: &str = "name = \"add\"\nid = \"00112233445566778899aabbccddeeff\"\nversion = \"1.0.0\"\n\
     licence = \"Apache-2.0\"\nabout = \"A test\"\nclock_mhz = 250\ncycles_per_flit = 2.0\n\
     region = { lut = 1, ff = 1, bram = 0, dsp = 0 }\n[params]\nmin = 1\nmax = 1\n\
     [backend.model]\nbuiltin = \"add\"\n[backend.rtl]\ntop = \"add\"\nsources = [\"a.v\"]\nlibrary = \"lib.so\"\n";

fn unusable(card: &Card, kernel: &str) -> Vec<Unusable> {
    card.status().kernels.into_iter().find(|k| k.name == kernel).expect("listed").unusable
}

#[test]
fn a_library_that_is_not_there_is_told_before_a_slot_is_used() {
    let mut catalogue = Catalogue::new();
    catalogue.add_builtin(Manifest::parse(TEXT).expect("good"), add).expect("added");
    let card = Card::new(CardConfig { host: host(), ..config(1) }, catalogue).expect("a card");
    let missing = || {
        let found = unusable(&card, "add");
        assert_eq!(found.iter().map(|u| u.backend).collect::<Vec<_>>(), [Kind::Rtl]);
        let opened = wait(card.open(want("add:rtl", 1, 1))).expect_err("it has no library");
        for error in [opened, card.check("add:rtl").expect_err("no"), card.prefer("add", Kind::Rtl).expect_err("no")] {
            assert_eq!((error.errno().name(), error.to_string()), ("ENOENT", found[0].why.clone()));
        }
        let slot = card.status().slots[1].clone();
        assert_eq!((slot.faults, slot.sessions, slot.state), (0, 0, SlotState::Empty));
        found[0].why.clone()
    };
    assert!(missing().contains("a folder that is not loaded"));
    // A folder without the library adds nothing, and is in the way of nothing.
    let folder = folder().join("not-built");
    std::fs::create_dir_all(&folder).expect("a folder");
    let _ = std::fs::remove_file(folder.join("lib.so"));
    std::fs::write(folder.join("kernel.toml"), TEXT).expect("written");
    let package = || Package::open(&folder).expect("a package");
    for refused in [card.load(package()).map(drop), card.could_load(package())] {
        let error = refused.expect_err("nothing in it can be used");
        assert!(error.errno().name() == "ENOENT" && error.to_string().ends_with("lib.so: No such file or directory"));
    }
    missing();
    wait(card.open(want("add", 1, 1))).expect("the built-in one is what it was");
    // Another one is in no way better than none.
    std::fs::write(folder.join("lib.so"), "no object").expect("written");
    assert!(matches!(card.load(package()), Err(CardError::Package(PackageError::Object { .. }))));
    let Some(library) = compile("GOOD") else { return };
    std::fs::copy(library, folder.join("lib.so")).expect("copied");
    card.could_load(package()).expect("it could be loaded");
    assert_eq!(unusable(&card, "add").len(), 1, "and is not");
    card.load(package()).expect("it is loaded");
    assert_eq!(unusable(&card, "add"), []);
    card.check("add:rtl").expect("it is there");
    // One that goes later is told, too.
    let again = card.load(package()).expect_err("twice").to_string();
    assert!(again.contains("is loaded from this folder already"), "{again}");
    std::fs::remove_file(folder.join("lib.so")).expect("removed");
    assert!(unusable(&card, "add")[0].why.ends_with("lib.so: No such file or directory"));
    assert_eq!(card.check("add:rtl").expect_err("gone").errno().name(), "ENOENT");
}

#[test]
fn a_stage_that_is_not_active_makes_its_chain_unusable_and_is_named() {
    let card = card(1);
    let text =
        TEXT.replace("\"add\"\nid", "\"both\"\nid").replace("lut = 1,", "lut = 200,").replace("ff = 1,", "ff = 2,");
    let (front, _) = text.split_once("[backend.model]").expect("there");
    let stages = "[backend.model]\nchain = [{ kernel = \"add\", params = [7] }, { kernel = \"plus\" }]\n";
    let manifest = Manifest::parse(&format!("{front}{stages}")).expect("good");
    card.load(Package::builtin(manifest).expect("a package")).expect("loaded");
    card.activate("both").expect("activated");
    assert_eq!(unusable(&card, "both"), []);
    card.deactivate("plus").expect("deactivated");
    let why = "kernel plus is not activated".to_owned();
    assert_eq!(unusable(&card, "both"), [Unusable { backend: Kind::Model, why: why.clone() }]);
    assert_eq!(card.check("both").expect_err("a stage is missing").to_string(), why);
}

#[test]
fn a_tenant_is_told_why_its_kernel_was_lost_and_no_other_is() {
    let card = card(2);
    let run = |tenant: u64, byte: u8| {
        let session = wait(card.open(want("add", 1, tenant))).expect("open");
        wait(session.run(vec![byte], 1)).map(drop)
    };
    run(1, 0).expect("good");
    run(2, 0).expect("good");
    run(1, 254).expect_err("what it does not take");
    let lost = |of: u64, by: u64| {
        let seen = card.status().seen_by(by);
        seen.tenants.into_iter().find(|t| t.tenant == of).expect("it is there").lost
    };
    assert!(lost(1, 1).is_none(), "it refused, and was not lost");
    run(1, 255).expect_err("it panics");
    let told = lost(1, 1).expect("it was lost");
    assert_eq!((told.kernel.as_str(), told.slot, told.session), ("add", 1, 3));
    assert!(told.why.contains("it panicked: a byte too large"), "{}", told.why);
    assert_eq!((lost(1, 2), lost(2, 2), lost(2, 1)), (None, None, None));
    run(1, 0).expect("another begins anew");
    let sessions = card.status().tenants[0].sessions;
    assert!(lost(1, 1).is_some_and(|l| l.session + 1 == sessions), "it is not the last one any longer");
}
