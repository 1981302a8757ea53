//! Manifests that are forged, and the life cycle of packages.

use crate::rig::{add, card, catalogue, config, manifest, once, wait, want};
use std::task::Poll;
use weldfs_fpga::card::Card;
use weldfs_fpga::config::{CardConfig, Want, WhenFull};
use weldfs_fpga::error::CardError;
use weldfs_fpga::manifest::{Kind, Manifest, PackageError, Region};
use weldfs_fpga::package::{Catalogue, Package};

const GOOD: &str = r#"
name = "mine"
id = "0123456789abcdef0123456789abcdef"
version = "1.2.3"
licence = "MIT"
about = "Something"
clock_mhz = 250
cycles_per_flit = 1.0
region = { lut = 10, ff = 10, bram = 0, dsp = 0 }
[params]
min = 1
max = 9
about = "words"
[ports]
dram_bytes = 4096
peek = ["rows"]
[backend.model]
library = "libmine.so"
[backend.rtl]
top = "mine"
sources = ["../rtl/mine.v"]
library = "librtl.so"
"#;

#[test]
fn a_good_manifest_is_what_it_says() {
    let manifest = Manifest::parse(GOOD).expect("good");
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("mine", "1.2.3"));
    assert_eq!(manifest.id.to_string(), "0123456789abcdef0123456789abcdef");
    assert_eq!(manifest.backend.kinds().collect::<Vec<_>>(), [Kind::Model, Kind::Rtl]);
    assert_eq!((manifest.params.max, manifest.ports.dram_bytes), (9, 4096));
}

/// What stands in the good one, what a forged one has instead, and what is to be found wrong.
const FORGED: &[(&str, &str, &str)] = &[
    ("\"mine\"\nid", "\"\"\nid", "name"),
    ("\"mine\"\nid", "\"Mine\"\nid", "name"),
    ("\"mine\"\nid", "\"../mine\"\nid", "name"),
    ("\"mine\"\nid", "\"-mine\"\nid", "name"),
    ("\"mine\"\nid", "\"a-name-that-is-longer-than-31-by\"\nid", "name"),
    ("0123456789abcdef0123456789abcdef", "0123", "id"),
    ("0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdeg", "id"),
    ("0123456789abcdef0123456789abcdef", "+123456789abcdef0123456789abcdef", "id"),
    ("0123456789abcdef0123456789abcdef", "00000000000000000000000000000000", "id"),
    ("1.2.3", "1.2", "version"),
    ("1.2.3", "1.2.x", "version"),
    ("1.2.3", "1..3", "version"),
    ("\"MIT\"", "\"\"", "licence"),
    ("Something", "Some\\u001bthing", "about"),
    ("Something", "Some\\u202ething", "about"),
    ("Something", "Some\\u2028thing", "about"),
    ("Something", "Some\\u2066thing", "about"),
    ("Something", "Some\\ufeffthing", "about"),
    ("\"MIT\"", "\"M\\u200bIT\"", "licence"),
    ("\"words\"", "\"wo\\u202erds\"", "params.about"),
    ("cycles_per_flit = 1.0", "cycles_per_flit = 1e-300", "cycles_per_flit"),
    ("cycles_per_flit = 1.0", "cycles_per_flit = 0.0156", "cycles_per_flit"),
    ("cycles_per_flit = 1.0", "cycles_per_flit = 4097.0", "cycles_per_flit"),
    ("clock_mhz = 250", "clock_mhz = 0", "clock_mhz"),
    ("clock_mhz = 250", "clock_mhz = -1", "kernel.toml"),
    ("cycles_per_flit = 1.0", "cycles_per_flit = 0.0", "cycles_per_flit"),
    ("cycles_per_flit = 1.0", "cycles_per_flit = nan", "cycles_per_flit"),
    ("cycles_per_flit = 1.0", "cycles_per_flit = inf", "cycles_per_flit"),
    ("lut = 10", "lut = 0", "region.lut"),
    ("lut = 10, ", "", "lut"),
    ("min = 1", "min = 10", "params"),
    ("max = 9", "max = 4097", "params"),
    ("[\"rows\"]", "[\"ro ws\"]", "ports.peek"),
    ("about = \"Something\"", "about = \"Something\"\nsecret = 1", "unknown field"),
    ("dram_bytes = 4096", "dram_bytes = 4096\nsecret = 1", "unknown field"),
    ("top = \"mine\"", "top = \"mine\"\nsecret = 1", "unknown field"),
    ("[backend.rtl]", "[backend.vhdl]", "unknown field"),
    ("\"libmine.so\"", "\"../libmine.so\"", "leaves the package"),
    ("\"libmine.so\"", "\"/lib/libmine.so\"", "leaves the package"),
    ("\"libmine.so\"", "\"a/../../libmine.so\"", "leaves the package"),
    ("\"libmine.so\"", "\"\"", "leaves the package"),
    ("\"librtl.so\"", "\"../librtl.so\"", "leaves the package"),
    ("library = \"libmine.so\"", "", "backend.model"),
    ("library = \"libmine.so\"", "library = \"libmine.so\"\nbuiltin = \"grep\"", "backend.model"),
    ("library = \"libmine.so\"", "chain = [{ kernel = \"grep\" }]", "backend.model.chain"),
    ("library = \"libmine.so\"", "chain = [{ kernel = \"grep\" }, { kernel = \"a/b\" }]", "backend.model.chain"),
    ("library = \"libmine.so\"", "chain = [{ kernel = \"grep\" }, { kernel = \"a:vhdl\" }]", "backend.model.chain"),
    ("library = \"libmine.so\"", "chain = [{ kernel = \"grep\" }, { kernel = \"a\", words = 1 }]", "unknown field"),
    (
        "library = \"libmine.so\"",
        "library = \"l.so\"\nchain = [{ kernel = \"a\" }, { kernel = \"b\" }]",
        "backend.model",
    ),
    ("name = \"mine\"", "name = \"mine", "kernel.toml"),
];

#[test]
fn a_forged_manifest_is_refused_with_what_is_wrong_in_it() {
    for (from, to, wrong) in FORGED {
        assert!(GOOD.contains(from), "{from} is not in the manifest");
        let error = Manifest::parse(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(error.contains(wrong), "{to:?}: {error:?} does not say {wrong:?}");
    }
    let bare = &GOOD[..GOOD.find("[backend.model]").expect("there")];
    assert!(Manifest::parse(&format!("{bare}[backend]\n")).is_err_and(|e| matches!(e, PackageError::NoBackend { .. })));
    assert!(Manifest::parse(bare).is_err(), "no back-end");
    assert!(Manifest::parse(&format!("{GOOD}# {}", "x".repeat(70_000))).is_err(), "too long");
}

#[test]
fn a_package_folder_is_checked_when_its_kernel_is_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let outside = tempfile::tempdir().expect("a folder");
    assert!(matches!(Package::open(folder.path()), Err(PackageError::File { .. })), "no manifest");
    assert!(matches!(Package::open(&folder.path().join("none")), Err(PackageError::File { .. })), "no folder");
    let path = folder.path().join("kernel.toml");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).expect("a pipe");
    let error = Package::open(folder.path()).expect_err("a pipe, that nothing writes into");
    assert!(error.to_string().contains("not a regular file"), "{error}");
    std::fs::remove_file(&path).expect("gone");
    std::fs::write(folder.path().join("kernel.toml"), GOOD).expect("written");
    let package = Package::open(folder.path()).expect("a package");
    assert!(matches!(package.library(Kind::Model), Err(PackageError::File { .. })), "no library yet");
    assert!(matches!(package.library(Kind::Hls), Err(PackageError::NoBackend { .. })));
    std::fs::write(outside.path().join("real.so"), "x").expect("written");
    std::os::unix::fs::symlink(outside.path().join("real.so"), folder.path().join("libmine.so")).expect("linked");
    assert!(matches!(package.library(Kind::Model), Err(PackageError::Outside { .. })), "a link that leads outside");
    std::fs::create_dir(folder.path().join("librtl.so")).expect("made");
    assert!(matches!(package.library(Kind::Rtl), Err(PackageError::File { .. })), "a folder");
    let error = card(1).load(package).expect_err("no back-end can be used");
    assert_eq!(error.errno().name(), "EINVAL");
}

#[test]
fn the_life_cycle_is_load_activate_execute_deactivate_unload() {
    let card = Card::new(config(1), catalogue()).expect("a card");
    let package = || Package::builtin(manifest("mine", "add", 100, 250)).expect("a package");
    let errno = |result: Result<(), CardError>| result.expect_err("refused").errno().name();
    let open = |want: Want| wait(card.open(want));
    assert_eq!(open(want("mine", 1, 1)).expect_err("not loaded").errno().name(), "ENOENT");
    assert_eq!(errno(card.activate("mine")), "ENOENT");
    card.load(package()).expect("loaded");
    assert_eq!(card.load(package()).expect_err("twice").errno().name(), "EEXIST");
    assert_eq!(open(want("mine", 1, 1)).expect_err("not active").errno().name(), "ENODEV");
    assert_eq!(errno(card.check("mine")), "ENODEV");
    card.activate("mine").expect("activated");
    card.check("mine").expect("active");
    card.check("mine:model").expect("it has a model");
    assert_eq!(errno(card.check("mine:rtl")), "ENOENT");
    assert_eq!(errno(card.check("mine:nonsense")), "ENOENT");
    assert_eq!(errno(card.unload("mine")), "EBUSY");
    let session = open(want("mine:model", 1, 1)).expect("open");
    assert_eq!(errno(card.deactivate("mine")), "EBUSY");
    let mut waiting = card.open(Want { when_full: WhenFull::Wait, ..want("mine", 1, 1) });
    assert!(once(&mut waiting).is_pending());
    drop(session);
    drop(waiting);
    card.deactivate("mine").expect("deactivated");
    assert!(card.status().slots[1].kernel.is_none(), "it has left its slot");
    card.unload("mine").expect("unloaded");
    assert_eq!(errno(card.check("mine")), "ENOENT");
    for name in ["add", "pass-through"] {
        assert_eq!(errno(card.unload(name)), "EPERM");
    }
    assert_eq!(errno(card.deactivate("pass-through")), "EPERM");
}

#[test]
fn what_does_not_fit_or_makes_no_sense_is_refused() {
    let small = Region { lut: 50, ff: 50, bram: 0, dsp: 0 };
    let card = Card::new(CardConfig { slots: vec![small], ..config(1) }, catalogue()).expect("a card");
    let refused = |want: Want| match once(&mut card.open(want)) {
        Poll::Ready(Err(error)) => error.errno().name(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(want("add", 1, 1)), "ENOSPC");
    assert_eq!(refused(Want { params: vec![], ..want("plus", 1, 1) }), "EINVAL");
    assert_eq!(refused(Want { params: vec![1, 2], ..want("plus", 1, 1) }), "EINVAL");
    let bad = [
        CardConfig { slots: vec![], ..config(1) },
        CardConfig { slots: vec![Region::default()], ..config(1) },
        CardConfig { credits: 0, ..config(1) },
        CardConfig { credit_bytes: 63, ..config(1) },
        CardConfig { credits: 4096, credit_bytes: 128 << 10, ..config(1) },
        CardConfig { clock_hz: 0, ..config(1) },
        CardConfig { watchdog: std::time::Duration::ZERO, ..config(1) },
    ];
    for config in bad {
        assert!(matches!(Card::new(config, Catalogue::new()), Err(CardError::Config(_))));
    }
    let mut unknown = Catalogue::new();
    unknown.add(Package::builtin(manifest("mine", "missing", 1, 250)).expect("a package")).expect("added");
    assert!(matches!(Card::new(config(1), unknown), Err(CardError::Package(PackageError::NoBackend { .. }))));
    let mut twice = catalogue();
    let other = Manifest { id: manifest("plus", "add", 1, 250).id, ..manifest("other", "add", 1, 250) };
    assert!(matches!(twice.add_builtin(other, add), Err(PackageError::Taken(_))));
}
