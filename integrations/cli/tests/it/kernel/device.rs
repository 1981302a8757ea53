//! Kernels of a running device.

use crate::images::{Bench, Served, fails, json, ok};
use crate::skips;
use std::process::{Command, Stdio};

#[test]
fn a_kernel_is_loaded_used_looked_at_and_unloaded() {
    let name = "a_kernel_is_loaded_used_looked_at_and_unloaded";
    let has = |tool: &str| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !["make", "c++", "python3"].into_iter().all(has) {
        return skips::skip(name, "make, c++ or python3 is not installed");
    }
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let (dir, folder) = (bench.dir.path().to_str().expect("text"), bench.path("k"));
    let folder = folder.to_str().expect("text");
    ok(["kernel", "new", "k", "--hls", "--dir", dir]);
    let (_, said) = fails(["kernel", "load", image, folder]);
    assert!(said.contains("no device serves"), "{said}");
    let served = Served::start(bench.path("a.img").as_path());
    ok(["kernel", "test", folder, "--cases", "5"]);
    assert_eq!(ok(["kernel", "load", image, folder, "--inactive"]), "k: loaded\n");
    let listed = || {
        let all = json(&ok(["kernel", "ls", image, "--json"]));
        all["kernels"].as_array().expect("kernels").iter().find(|k| k["name"] == "k").cloned()
    };
    assert_eq!(listed().expect("it is there")["active"], false);
    let program =
        "open /f rw create; buffer out 64; buffer in 64; fill in \"quiet\"; kernel k(0) in -> out; write 0 out";
    fails(["exec", image, program]);
    ok(["kernel", "activate", image, "k"]);
    assert_eq!(listed().expect("it is there")["active"], true);
    let (_, said) = fails(["kernel", "peek", image, "k"]);
    assert!(said.contains("it is in no slot"), "{said}");
    ok(["exec", image, program]);
    assert_eq!(ok(["cat", &bench.inside("a.img", "/f")]), "QUIET");
    assert_eq!(ok(["kernel", "peek", image, "k"]), "changed = 5\n");
    assert_eq!(ok(["kernel", "peek", image, "k", "0"]), "changed = 5\n");
    assert_eq!(json(&ok(["kernel", "peek", image, "k", "changed", "--json"]))[0]["word"], 5);
    let (_, said) = fails(["kernel", "peek", image, "k", "7"]);
    assert!(said.contains("it has no port 7"), "{said}");
    let (_, said) = fails(["kernel", "peek", image, "k", "none"]);
    assert!(said.contains("no debug port none"), "{said}");
    let shown = ok(["kernel", "ls", image]);
    assert!(
        shown.lines().any(|line| line.starts_with("k ") && line.contains("active") && line.contains("hls")),
        "{shown}"
    );
    ok(["kernel", "deactivate", image, "k"]);
    fails(["exec", image, program]);
    ok(["kernel", "unload", image, "k"]);
    assert_eq!(listed(), None);
    for verb in ["unload", "activate", "deactivate", "peek"] {
        let (_, said) = fails(["kernel", verb, image, "k"]);
        assert!(said.contains("has no"), "{verb}: {said}");
    }
    // The same id under another name, and what the device brings.
    ok(["kernel", "load", image, folder]);
    let manifest = bench.path("k/kernel.toml");
    let text = std::fs::read_to_string(&manifest).expect("a manifest");
    std::fs::write(&manifest, text.replace("name = \"k\"", "name = \"l\"")).expect("written");
    let (_, said) = fails(["kernel", "load", image, folder]);
    assert!(said.contains("kernel k has the same id"), "{said}");
    let (_, said) = fails(["kernel", "unload", image, "grep"]);
    assert!(said.contains("what the device brings stays"), "{said}");
    served.term();
}

/// A stream has it in a slot; and who asks for one that is no more is told so.
#[test]
fn a_kernel_in_use_stays_and_one_that_is_gone_is_missed() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    std::fs::create_dir(bench.path("twice")).expect("a folder");
    let text = "name = \"twice\"\nid = \"0123456789abcdef0123456789abcde0\"\nversion = \"1.0.0\"\n\
         licence = \"Apache-2.0\"\nabout = \"Runs of runs\"\nclock_mhz = 250\ncycles_per_flit = 1.0\n\
         region = { lut = 130000, ff = 30000, bram = 0, dsp = 0 }\n[backend.model]\n\
         chain = [{ kernel = \"rle\", params = [] }, { kernel = \"rle\" }]\n";
    std::fs::write(bench.path("twice/kernel.toml"), text).expect("written");
    let served = Served::start(bench.path("a.img").as_path());
    ok(["kernel", "load", image, bench.path("twice").to_str().expect("text")]);
    let at = |path: &str| bench.inside("a.img", path);
    let client = weldfs::Client::connect(format!("{image}.sock")).expect("attaches");
    client.write("/pairs", b"\x01\x02\x01z").expect("written");
    ok(["virt", "add", &at("/v"), "--kernel", "twice", &at("/pairs")]);
    let file = client.vopen("/v", weldfs::OpenFlags::READ).expect("opens");
    assert_eq!(file.vread(&mut [0; 1][..]).expect("reads"), 1);
    let says = |args: &[&str], what: &str| {
        let (code, said) = fails(args);
        assert!(code == 1 && said.lines().count() == 1 && said.contains(what), "{args:?}: {code}: {said}");
    };
    let in_use = "twice: it is in use: a stream or a command has it in a slot";
    says(&["kernel", "deactivate", image, "twice"], in_use);
    says(&["kernel", "unload", "--deactivate", image, "twice"], in_use);
    let all = json(&ok(["kernel", "ls", image, "--json"]));
    let listed = all["kernels"].as_array().expect("kernels").iter().find(|k| k["name"] == "twice").expect("listed");
    assert!(listed["active"] == true && listed["parameters"]["max"] == 0, "{listed}");
    file.vclose().expect("closes");
    ok(["kernel", "deactivate", image, "twice"]);
    says(&["cat", &at("/v")], "its kernel twice is not active (weldfs kernel activate)");
    ok(["kernel", "unload", image, "twice"]);
    says(&["cat", &at("/v")], "the device has no kernel twice (weldfs kernel ls)");
    says(&["kernel", "unload", image, "a\u{1b}b\n"], "cannot unload a\\u{1b}b\\n: the device has no such kernel");
    served.term();
}

#[test]
fn a_drive_without_slots_is_refused() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let (code, said) = fails(["serve", image, "--slots", "0"]);
    assert!(code == 2 && said.contains("'0' is not a number from 1 to 64"), "{said}");
    std::fs::write(bench.path("p.toml"), "name = \"p\"\n[slots]\ncount = 0\n").expect("written");
    let (code, said) = fails(["serve", image, "--profile", bench.path("p.toml").to_str().expect("text")]);
    assert!(code != 0 && said.contains("slots.count must be at least 1 and at most 64"), "{code}: {said}");
}

/// A package that has only an image for a card, on a machine that has no card: it is loaded, and says why it does not
/// run.
#[test]
fn a_kernel_for_a_card_that_is_not_there_is_listed_with_the_reason() {
    let cards = weldfs_fpga::xrt::cards(std::path::Path::new("/sys")).expect("sysfs");
    if !cards.is_empty() {
        let name = "a_kernel_for_a_card_that_is_not_there_is_listed_with_the_reason";
        return skips::skip(name, "this machine has a card");
    }
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let (image, folder) = (image.to_str().expect("text"), bench.path("shout"));
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("shout.xclbin"), "for a card").expect("written");
    let text = "name = \"shout\"\nid = \"1234567890abcdef1234567890abcdef\"\nversion = \"1.0.0\"\n\
         licence = \"Apache-2.0\"\nabout = \"A test\"\nclock_mhz = 250\ncycles_per_flit = 1.0\n\
         region = { lut = 1, ff = 1, bram = 0, dsp = 0 }\n[params]\nmin = 1\nmax = 1\n\
         [backend.xrt]\nxclbin = \"shout.xclbin\"\n";
    std::fs::write(folder.join("kernel.toml"), text).expect("written");
    let folder = folder.to_str().expect("text");
    let why = "shout: its back-end xrt cannot be used: this machine has no card that kernels can run on";
    let served = Served::start(bench.path("a.img").as_path());
    assert_eq!(ok(["kernel", "load", image, folder]), "shout: loaded and active\n");
    let shown = ok(["kernel", "ls", image]);
    assert!(shown.lines().any(|line| line == why), "{shown}");
    let all = json(&ok(["kernel", "ls", image, "--json"]));
    let kernel = all["kernels"].as_array().expect("kernels").iter().find(|k| k["name"] == "shout").expect("listed");
    assert_eq!(kernel["unusable"][0]["backend"], "xrt");
    let program =
        "open /f rw create; buffer out 64; buffer in 64; fill in \"x\"; kernel shout(0) in -> out; write 0 out";
    let (_, said) = fails(["exec", image, program]);
    assert!(said.contains("kernel shout cannot run as xrt: this machine has no card"), "{said}");
    let (_, said) = fails(["kernel", "run", folder, "--back-end", "xrt"]);
    assert!(said.contains("this machine has no card that kernels can run on"), "{said}");
    ok(["kernel", "unload", "--deactivate", image, "shout"]);
    served.term();
}
