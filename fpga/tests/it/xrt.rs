//! Packages whose only back-end is an image for a card, in a slot. The library under them is one made for these tests,
//! `tests/kernels/fake_xrt.c`, and where it is installed XRT's own, without a card.

use crate::process::{folder, host};
use crate::rig::{config, once, until, wait, want};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weldfs_fpga::card::Card;
use weldfs_fpga::config::{CardConfig, Want};
use weldfs_fpga::error::CardError;
use weldfs_fpga::kernel::Fault;
use weldfs_fpga::manifest::{Kind, PackageError};
use weldfs_fpga::package::{Catalogue, Package};
use weldfs_fpga::status::{SlotState, Unusable};
use weldfs_fpga::xrt::{Place, library_file};

/// The library. None, said, where there is no C compiler.
fn fake() -> Option<PathBuf> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let at = folder().join("libfake_xrt.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/fake_xrt.c");
        match Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&at).arg(source).status() {
            Ok(status) => assert!(status.success(), "the library for tests compiles"),
            Err(e) => {
                println!("SKIP: cards are not tested: cc: {e}");
                return None;
            }
        }
        Some(at)
    };
    MADE.get_or_init(make).clone()
}

/// A sysfs with a card that XRT's driver has.
fn sys() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let card = folder().join("sys/bus/pci/devices/0000:65:00.1");
        std::fs::create_dir_all(&card).expect("a folder");
        std::fs::write(card.join("vendor"), "0x10ee\n").expect("written");
        symlink("/bus/pci/drivers/xocl", card.join("driver")).expect("linked");
        folder().join("sys")
    };
    MADE.get_or_init(make).clone()
}

/// A package with an image of this name, which says what the library does; the kernel in it is `weld_shout`.
fn package(image: &str) -> Package {
    let folder = folder().join(format!("image-{image}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(format!("{image}.xclbin")), "for a card").expect("written");
    let text = format!(
        "name = \"shout\"\nid = \"1234567890abcdef1234567890abcdef\"\nversion = \"1.0.0\"\nlicence = \"Apache-2.0\"\n\
         about = \"A test\"\nclock_mhz = 250\ncycles_per_flit = 3.0\n\
         region = {{ lut = 1, ff = 1, bram = 0, dsp = 0 }}\n\
         [params]\nmin = 1\nmax = 1\n[backend.xrt]\nxclbin = \"{image}.xclbin\"\n"
    );
    std::fs::write(folder.join("kernel.toml"), text).expect("written");
    Package::open(&folder).expect("a package")
}

/// A card with two slots that has that package.
fn with(image: &str, place: Place) -> Arc<Card> {
    watched(image, place, Duration::from_secs(20))
}

fn watched(image: &str, place: Place, watchdog: Duration) -> Arc<Card> {
    let config = CardConfig { host: host(), place, watchdog, ..config(2) };
    let card = Card::new(config, crate::rig::catalogue()).expect("a card");
    card.load(package(image)).expect("loaded");
    card.activate("shout").expect("activated");
    card
}

fn place() -> Option<Place> {
    Some(Place { sys: sys(), library: Some(fake()?), opening: Duration::from_secs(20), ..Place::default() })
}

#[test]
fn a_package_that_has_only_an_image_runs_in_a_slot() {
    let Some(place) = place() else { return };
    let card = with("good", place);
    assert_eq!(card.check("shout"), Ok(()));
    let kernel = card.status().kernels.into_iter().find(|k| k.name == "shout").expect("it is known");
    assert_eq!((kernel.backend, kernel.backends, kernel.unusable), (Kind::Xrt, vec![Kind::Xrt], vec![]));
    let session = wait(card.open(want("shout", 0, 7))).expect("open");
    for len in [0, 1, 63, 64, 65, 130, 100_000, 3_000_000] {
        let packet: Vec<u8> = (0..len).map(|i: u32| b'a' + (i % 26) as u8).collect();
        let ran = wait(session.run(packet.clone(), packet.len())).expect("ran");
        assert!(ran.output == packet.to_ascii_uppercase(), "{len} bytes");
        assert_eq!(ran.usage.cycles, (3 * u64::from(len).div_ceil(64)).max(1), "as the manifest says");
        assert_eq!(ran.usage.bytes_out, u64::from(len));
    }
    assert_eq!(wait(session.run(b"too long".to_vec(), 3)), Err(Fault::TooLong(3)));
    wait(async {
        session.send_params(vec![0]).await.expect("it begins anew");
        for part in ["a st", "", "ream"] {
            session.push(part.into(), false).await.expect("push");
        }
        session.push(Vec::new(), true).await.expect("push");
        let (mut got, mut eop) = (Vec::new(), false);
        while !eop {
            let pulled = session.pull(3).await.expect("pull");
            (eop, got) = (pulled.eop, [got, pulled.bytes].concat());
        }
        assert_eq!(got, b"A STREAM");
    });
    // What the kernel on the card refuses.
    wait(session.send_params(vec![1])).expect("they are only seen with a packet");
    assert!(matches!(wait(session.run(b"a".to_vec(), 9)), Err(Fault::Params(_))));
    wait(session.send_params(vec![0])).expect("it begins anew");
    assert_eq!(wait(session.run(b"a".to_vec(), 9)).expect("ran").output, b"A");
    let slot = &card.status().slots[session.slot()];
    assert_eq!((slot.backend, slot.tenant, slot.faults), (Some(Kind::Xrt), Some(7), 0));
}

#[test]
fn without_a_card_opening_is_enodev_with_a_sentence_and_no_slot_is_touched() {
    let nothing = folder().join("no-sys");
    std::fs::create_dir_all(&nothing).expect("a folder");
    let card = with("good", Place { sys: nothing, ..Place::default() });
    let why = "this machine has no card that kernels can run on";
    for kernel in ["shout", "shout:xrt"] {
        let error = wait(card.open(want(kernel, 0, 1))).expect_err("refused");
        assert_eq!((error.to_string().as_str(), error.errno().name()), (why, "ENODEV"), "{kernel}");
        assert_eq!(card.check(kernel), Err(error));
    }
    let status = card.status();
    assert!(status.slots[1..].iter().all(|s| s.kernel.is_none() && s.reconfigurations == 0));
    let kernel = status.kernels.into_iter().find(|k| k.name == "shout").expect("it is known");
    assert_eq!(kernel.unusable, [Unusable { backend: Kind::Xrt, why: why.into() }]);
    assert_eq!(card.deactivate("shout"), Ok(()));
    assert_eq!(card.unload("shout"), Ok(()));
}

#[test]
fn a_card_whose_library_ends_hangs_or_refuses_is_a_fault_of_its_session_alone() {
    let Some(place) = place() else { return };
    // At opening, then while a packet runs.
    let opening = [
        ("abort", "was ended by signal 6; it said: XRT_CORE: no shim was found"),
        ("exit", "exited with code 3"),
        ("crash", "was ended by signal 11"),
        ("hang", "took more than 0.5 s"),
        ("noload", "XRT does not load"),
        ("other", "has no kernel weld_shout"),
    ];
    for (image, says) in opening {
        let place =
            Place { opening: Duration::from_millis(if image == "hang" { 500 } else { 20_000 }), ..place.clone() };
        let card = with(image, place);
        let add = wait(card.open(want("add", 5, 1))).expect("open");
        match wait(card.open(want("shout", 0, 2))) {
            Err(CardError::Fault(Fault::Lost(why))) => assert!(why.contains(says), "{image}: {why}"),
            other => panic!("{image}: {other:?}"),
        }
        assert_eq!(wait(add.run(vec![1; 100_000], 100_000)).expect("unharmed").output, vec![6; 100_000]);
    }
    let running = [
        ("abortrun", "was ended by signal 6"),
        ("exitrun", "exited with code 5"),
        ("crashrun", "was ended by signal 11"),
        ("hangrun", "took more than 0.5 s"),
        ("long", "made more than"),
    ];
    for (image, says) in running {
        let watchdog = Duration::from_millis(if image == "hangrun" { 500 } else { 20_000 });
        let card = watched(image, place.clone(), watchdog);
        let add = wait(card.open(want("add", 5, 1))).expect("open");
        let session = wait(card.open(want("shout", 0, 2))).expect("open");
        for _ in 0..2 {
            match wait(session.run(b"abc".to_vec(), 100)) {
                Err(Fault::Lost(why)) => assert!(why.contains(says), "{image}: {why}"),
                other => panic!("{image}: {other:?}"),
            }
        }
        assert_eq!(wait(add.run(vec![1; 100_000], 100_000)).expect("unharmed").output, vec![6; 100_000]);
        let slot = session.slot();
        drop(session);
        assert_eq!(card.status().slots[slot].faults, 2, "{image}");
    }
}

#[test]
fn a_device_that_goes_does_not_wait_for_a_card_that_hangs() {
    let Some(place) = place() else { return };
    let hour = Duration::from_secs(3600);
    for image in ["hang", "hangrun"] {
        let card = watched(image, Place { opening: hour, ..place.clone() }, hour);
        if image == "hang" {
            let mut opening = card.open(want("shout", 0, 1));
            assert!(once(&mut opening).is_pending());
            drop(card);
            assert!(matches!(wait(opening), Err(CardError::Fault(Fault::Lost(_)))));
        } else {
            let session = wait(card.open(want("shout", 0, 1))).expect("open");
            let mut packet = Box::pin(session.run(vec![1; 100], 100));
            assert!(once(&mut packet).is_pending());
            drop(card);
            assert!(matches!(wait(packet), Err(Fault::Lost(_))));
        }
    }
}

#[test]
fn a_session_that_goes_leaves_no_slot_to_a_card_that_hangs() {
    let Some(place) = place() else { return };
    let hour = Duration::from_secs(3600);
    for image in ["hang", "hangrun"] {
        let card = watched(image, Place { opening: hour, ..place.clone() }, hour);
        if image == "hang" {
            let mut opening = card.open(want("shout", 0, 1));
            assert!(once(&mut opening).is_pending());
        } else {
            let session = wait(card.open(want("shout", 0, 1))).expect("open");
            let mut packet = Box::pin(session.run(vec![1; 100], 100));
            assert!(once(&mut packet).is_pending());
            std::thread::sleep(Duration::from_millis(50));
        }
        let held = || card.status().slots.iter().any(|s| s.state == SlotState::Held);
        until(|| (!held()).then_some(()));
    }
}

/// How many packets the helper of a session has run before, and this one.
fn count(card: &Card, tenant: u64) -> u8 {
    let session = wait(card.open(want("shout", 0, tenant))).expect("open");
    wait(session.run(b"x".to_vec(), 9)).expect("ran").output[0]
}

#[test]
fn a_helper_serves_one_tenant_and_one_that_ended_while_idle_is_no_fault_of_the_next_session() {
    let Some(place) = place() else { return };
    let config = CardConfig { host: host(), place, ..config(1) };
    let card = Card::new(config, Catalogue::new()).expect("a card");
    card.load(package("count")).expect("loaded");
    card.activate("shout").expect("activated");
    assert_eq!([count(&card, 1), count(&card, 1), count(&card, 2), count(&card, 2), count(&card, 1)], [1, 2, 1, 2, 1]);
    let helpers = helpers();
    assert_eq!(helpers.len(), 1, "it waits for its next session; those of other tenants are gone");
    for id in helpers {
        assert!(Command::new("kill").args(["-KILL", &id]).status().expect("kill").success());
    }
    assert_eq!(count(&card, 1), 1, "a new one");
}

/// Helpers that have the image of the test above open.
fn helpers() -> Vec<String> {
    let mark = folder().join("image-count").to_str().expect("UTF-8").to_owned();
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let ids = processes.map(|p| p.file_name().to_string_lossy().into_owned());
    let has = |id: &String| {
        let open = std::fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        open.any(|file| file.starts_with(&mark))
    };
    ids.filter(|id| id.parse::<u32>().is_ok_and(|id| id != std::process::id())).filter(has).collect()
}

#[test]
fn what_the_cards_memory_held_before_is_not_given_out() {
    let Some(place) = place() else { return };
    let card = with("dirty", place);
    let session = wait(card.open(want("shout", 0, 1))).expect("open");
    assert!(wait(session.run(vec![1; 5000], 5000)).expect("ran").output == [0; 5000]);
}

#[test]
fn an_image_is_a_file_of_its_package() {
    let folder = folder().join("image-missing");
    let open = |xclbin: &str| {
        std::fs::create_dir_all(&folder).expect("a folder");
        let text = std::fs::read_to_string(folder.with_file_name("image-good").join("kernel.toml"))
            .expect("a manifest")
            .replace("good.xclbin", xclbin);
        std::fs::write(folder.join("kernel.toml"), text).expect("written");
        let card = Card::new(CardConfig { host: host(), ..config(1) }, Catalogue::new()).expect("a card");
        card.load(Package::open(&folder).expect("a package")).expect_err("refused")
    };
    package("good");
    let missing = open("none.xclbin");
    assert!(matches!(missing, CardError::Package(PackageError::File { .. })), "{missing}");
    symlink("/etc/hostname", folder.join("link.xclbin")).expect("linked");
    let outside = open("link.xclbin");
    assert!(matches!(outside, CardError::Package(PackageError::Outside { key: "xclbin", .. })), "{outside}");
}

/// With a sysfs that says there is a card, XRT's own library is asked, and knows better.
#[test]
fn xrts_own_library_says_that_there_is_no_card() {
    let name = "xrts_own_library_says_that_there_is_no_card";
    let Some(library) = library_file() else { return println!("SKIP: {name}: XRT is not installed (libxrt-dev)") };
    if !weldfs_fpga::xrt::cards(Path::new("/sys")).expect("sysfs").is_empty() {
        return println!("SKIP: {name}: this machine has a card");
    }
    let card = with("good", Place { sys: sys(), library: Some(library), ..Place::default() });
    let error = wait(card.open(Want { tenant: 3, ..want("shout", 0, 1) })).expect_err("refused");
    assert_eq!((error.to_string().as_str(), error.errno().name()), ("XRT opens no card number 0", "ENODEV"));
    assert_eq!(wait(card.open(want("add", 5, 1))).map(drop), Ok(()), "the slots are free for others");
}
