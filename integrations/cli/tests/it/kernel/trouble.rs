//! What is wrong with a kernel of a device, or with its packet, is a sentence, in whichever verb it comes up.

use crate::images::{Bench, Served, fails, json, ok, weldfs};
use crate::skips;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What each manifest below has in common; `%` is the name.
const HEAD: &str = "name = \"%\"\nversion = \"1.0.0\"\nlicence = \"Apache-2.0\"\nabout = \"A test\"\nclock_mhz = 250\n\
     cycles_per_flit = 1.0\n";

/// The folder of a package, whose id is made of its name.
fn package(bench: &Bench, name: &str, lut: u32, rest: &str) -> PathBuf {
    let folder = bench.path(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    let id: String = name.bytes().chain(std::iter::repeat(9)).take(16).map(|b| format!("{b:02x}")).collect();
    let region = format!("region = {{ lut = {lut}, ff = 30000, bram = 0, dsp = 0 }}\n");
    let text = format!("{}id = \"{id}\"\n{region}{rest}", HEAD.replace('%', name));
    std::fs::write(folder.join("kernel.toml"), text).expect("written");
    folder
}

const ONE: &str = "[params]\nmin = 1\nmax = 1\n[backend.model]\nlibrary = \"lib.so\"\n";
const RLE_TWICE: &str = "[backend.model]\nchain = [{ kernel = \"rle\", params = [] }, { kernel = \"rle\" }]\n";

/// The kernel of the card's own tests, built to do wrong in one way. None without a compiler.
fn build(folder: &Path, behaviour: &str) -> Option<()> {
    let fpga = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fpga");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-fPIC", "-shared", "-o"]).arg(folder.join("lib.so")).arg(format!("-D{behaviour}"));
    cc.arg("-I").arg(fpga.join("include")).arg(fpga.join("tests/kernels/add.c"));
    cc.status().ok().map(|status| assert!(status.success(), "{behaviour}: {status}"))
}

fn says(args: &[&str], what: &str) {
    let (code, said) = fails(args);
    assert!(code == 1 && said.lines().count() == 1 && said.contains(what), "{args:?}: {code}: {said}");
}

#[test]
fn why_a_kernel_was_lost_is_told_to_who_used_it_and_logged() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let (image, log) = (image.to_str().expect("text"), bench.path("log"));
    let at = |path: &str| bench.inside("a.img", path);
    let served = Served::logging(&bench.path("a.img"), &log);
    let client = weldfs::Client::connect(format!("{image}.sock")).expect("attaches");
    client.write("/text", b"0123456789").expect("written");
    for (name, behaviour, why) in [
        ("crashes", "CRASHES", "its process ended: signal"),
        ("no-end", "NEVER_ENDS", "it neither takes nor makes anything"),
    ] {
        let folder = package(&bench, name, 10, ONE);
        if build(&folder, behaviour).is_none() {
            return skips::skip("why_a_kernel_was_lost_is_told_to_who_used_it_and_logged", "cc is not installed");
        }
        ok(["kernel", "load", image, folder.to_str().expect("text")]);
        let (read, write) = (at(&format!("/{name}-read")), at(&format!("/{name}-write")));
        ok(["virt", "add", &read, "--kernel", name, "--param", "1", &at("/text")]);
        ok(["virt", "add", &write, "--kernel", name, "--param", "1", "--write", &at("/text")]);
        let lost = |whose: &str| format!("{whose} {name} was lost in slot ");
        let said = |args: &[&str], whose: &str, more: &str| {
            let (code, said) = fails(args);
            let good = said.contains(&lost(whose)) && said.contains(why) && said.trim_end().ends_with(more);
            assert!(code == 1 && said.lines().count() == 1 && good, "{args:?}: {code}: {said}");
        };
        said(&["cat", &read], "its kernel", "");
        let bytes = bench.path("bytes");
        std::fs::write(&bytes, b"abc").expect("written");
        said(&["put", bytes.to_str().expect("text"), &write], "its kernel", "; what it made before is in the file");
        let program = format!("open /text r; buffer out 64; read 0 8 -> in; kernel {name}(1) in -> out");
        said(&["exec", image, &program], "kernel", "");
        let logged = std::fs::read_to_string(&log).expect("a log");
        let line = logged.lines().rfind(|line| line.contains(&format!("kernel {name} in slot "))).expect("a line");
        let good = line.contains("WARN") && line.contains(" was lost for tenant uid:") && line.contains(why);
        assert!(good, "{line}");
        // Another session of the tenant's that was good: nothing is said of a loss before it.
        ok(["virt", "add", &at(&format!("/{name}-fine")), "--kernel", "crc32c", &at("/text")]);
        assert_eq!(weldfs(["cat", &at(&format!("/{name}-fine"))]).stdout.len(), 4);
    }
    served.term();
}

#[test]
fn a_library_that_is_not_there_is_told_when_it_is_asked_for_and_takes_no_slot() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let at = |path: &str| bench.inside("a.img", path);
    // The folder of a kernel of the catalogue, as it is before its library is built.
    let folder = bench.path("crc32c");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("kernel.toml"), include_str!("../../../../../fpga/packages/crc32c/kernel.toml"))
        .expect("written");
    let served = Served::start(&bench.path("a.img"));
    let load = ["kernel", "load", image, folder.to_str().expect("text")];
    let listed = || {
        let all = json(&ok(["kernel", "ls", image, "--json"]));
        let slots = all["slots"].as_array().expect("slots").clone();
        let used = slots[1..].iter().map(|s| (s["sessions"].as_u64().expect("a number"), s["faults"].as_u64()));
        assert!(used.into_iter().all(|used| used == (0, Some(0))), "{slots:?}");
        let kernels = all["kernels"].as_array().expect("kernels").clone();
        kernels.into_iter().find(|k| k["name"] == "crc32c").expect("it is there")["unusable"].clone()
    };
    let why = "its library is in a folder that is not loaded (weldfs kernel load)";
    assert_eq!((&listed()[0]["backend"], &listed()[0]["why"]), (&"rtl".into(), &why.into()));
    let shown = ok(["kernel", "ls", image]);
    let row = shown.lines().find(|line| line.starts_with("crc32c ")).expect("a row");
    assert!(row.contains(" model,(rtl) "), "{row}");
    let legend: Vec<&str> = shown.lines().filter(|line| line.contains(why)).collect();
    assert!(
        legend.len() == 2 && legend.iter().any(|line| line.contains("their back-end rtl cannot be used: ")),
        "{shown}"
    );
    // Twice the same: a folder that adds nothing is in no other's way.
    for _ in 0..2 {
        says(&load, "/librtl_crc32c.so: No such file or directory: it has to be built first");
    }
    ok(["exec", image, "open /f rw create; write 0 \"bytes\""]);
    let added = weldfs(["virt", "add", &at("/v"), "--kernel", "crc32c:rtl", &at("/f")]);
    let said = String::from_utf8_lossy(&added.stderr).into_owned();
    assert!(
        added.status.success() && said.contains("cannot be opened yet: its kernel crc32c cannot run as rtl"),
        "{said}"
    );
    says(&["cat", &at("/v")], &format!("cannot open {}: its kernel crc32c cannot run as rtl: {why}", at("/v")));
    let program = "open /f r; buffer out 64; read 0 4 -> in; kernel crc32c:rtl() in -> out";
    says(&["exec", image, program], &format!("kernel crc32c cannot run as rtl: {why}"));
    assert_eq!(listed()[0]["why"], why, "and no slot was used");
    // One that is no library is no better.
    std::fs::write(folder.join("librtl_crc32c.so"), "no object").expect("written");
    says(&load, "librtl_crc32c.so cannot be loaded: ");
    served.term();
}

#[test]
fn a_package_that_is_refused_is_refused_with_the_reason() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let served = Served::start(&bench.path("a.img"));
    let load = |folder: &Path| ["kernel".into(), "load".into(), image.to_owned(), folder.display().to_string()];
    let refused = |folder: &Path, what: &str| {
        let args = load(folder);
        says(&args.each_ref().map(String::as_str), what);
    };
    let (_, said) = fails(load(Path::new("/nonexist")));
    assert!(said.matches("/nonexist").count() == 1, "{said}");
    let many = package(&bench, "many", 10, RLE_TWICE);
    refused(&many, "its stages take ");
    let none =
        package(&bench, "none", 130_000, &RLE_TWICE.replace("{ kernel = \"rle\" }", "{ kernel = \"not-there\" }"));
    refused(&none, ": its stage not-there is of no kernel or back-end that the device has");
    let large = package(&bench, "large", 2_000_000, RLE_TWICE);
    refused(&large, "cannot activate large: no slot is large enough for it");
    refused(&large, "kernel large is loaded from this folder already");
    let (_, said) = fails(["kernel", "activate", image, "large"]);
    assert!(said.contains("no slot is large enough for it"), "{said}");
    ok(["kernel", "unload", image, "large"]);
    let twice = package(&bench, "twice", 130_000, RLE_TWICE);
    ok(load(&twice));
    let text = std::fs::read_to_string(twice.join("kernel.toml")).expect("a manifest");
    std::fs::write(twice.join("kernel.toml"), text.replace("twice", "other")).expect("written");
    refused(&twice, "kernel twice has the same id");
    let rle =
        package(&bench, "rle", 130_000, "[backend.model]\nchain = [{ kernel = \"lz4\" }, { kernel = \"lz4\" }]\n");
    refused(&rle, "kernel rle comes with the device, and this is another one");
    // What is active is deactivated first, by whoever unloads it.
    says(&["kernel", "unload", image, "twice"], "it is active (weldfs kernel deactivate, or unload --deactivate)");
    let all = json(&ok(["kernel", "ls", image, "--json"]));
    let active = |k: &serde_json::Value| k["name"] == "twice" && k["active"] == true;
    assert!(all["kernels"].as_array().expect("kernels").iter().any(active), "it is what it was");
    ok(["kernel", "unload", "--deactivate", image, "twice"]);
    says(&["kernel", "unload", "--deactivate", image, "grep"], "what the device brings stays");
    says(&["kernel", "deactivate", image, "pass-through"], "slot 0 holds it for ever");
    let all = json(&ok(["kernel", "ls", image, "--json"]));
    assert!(all["kernels"].as_array().expect("kernels").iter().all(|k| k["active"] == true), "{all}");
    served.term();
}

#[test]
fn what_a_kernel_has_against_a_step_of_a_program_is_a_sentence() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let served = Served::start(&bench.path("a.img"));
    ok(["kernel", "load", image, package(&bench, "twice", 130_000, RLE_TWICE).to_str().expect("text")]);
    let step = |kernel: &str, what: &str| {
        let program = format!("open /f rw create; write 0 \"a\"; buffer out 64; read 0 1 -> in; {kernel} in -> out");
        says(&["exec", image, &program], what);
    };
    step("kernel rle()", "): kernel rle does not take what it is given");
    step("kernel grep()", "): kernel grep takes 2 to ");
    step("kernel grep(9, 9)", "): kernel grep refuses the values of its parameters");
    step("kernel none()", "): the device has no kernel none (weldfs kernel ls)");
    step("kernel rle:hls()", "): kernel rle has no back-end hls");
    ok(["kernel", "deactivate", image, "rle"]);
    step("kernel rle()", "): kernel rle is not active (weldfs kernel activate)");
    // Of a chain, the stage is to blame, in every verb.
    step("kernel twice()", "): kernel twice is a chain, and its stage rle is not active");
    ok(["exec", image, "open /g rw create; write 0 \"abc\""]);
    let virt = bench.inside("a.img", "/v");
    weldfs(["virt", "add", &virt, "--kernel", "twice", &bench.inside("a.img", "/g")]);
    says(&["cat", &virt], "its kernel twice is a chain, and its stage rle is not active (weldfs kernel activate)");
    ok(["kernel", "activate", image, "rle"]);
    let program = "buffer out 8; open /g r; read 0 3 -> in; kernel pass-through() in -> out; buffer two 2; \
         kernel pass-through() in -> two";
    says(&["exec", image, program], "kernel pass-through makes more than the 2 bytes that the buffer has room for");
    served.term();
}

#[test]
fn what_is_pinned_says_that_it_is() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let served = Served::start(&bench.path("a.img"));
    let client = weldfs::Client::connect(format!("{image}.sock")).expect("attaches");
    client.write("/real", b"0123456789").expect("written");
    let at = |path: &str| bench.inside("a.img", path);
    ok(["virt", "add", &at("/v"), "--kernel", "pass-through", &at("/real")]);
    let open = client.vopen("/v", weldfs::OpenFlags::READ).expect("opens");
    std::fs::write(bench.path("new"), b"new").expect("written");
    let pinned = "bytes of it are being streamed by a virtual file that is open";
    says(&["put", bench.path("new").to_str().expect("text"), &at("/real")], pinned);
    says(&["exec", image, "open /real rw trunc"], pinned);
    says(&["truncate", "--size", "0", &at("/real")], pinned);
    open.vclose().expect("closes");
    ok(["put", bench.path("new").to_str().expect("text"), &at("/real")]);
    served.term();
}

/// A loaded back-end of the card's checksum that makes something else: the record is not written, or a core's is.
#[test]
fn a_slot_that_makes_no_checksum_is_a_lost_one() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let served = Served::start(&bench.path("a.img"));
    let folder = bench.path("crc32c");
    std::fs::create_dir(&folder).expect("a folder");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fpga/packages/crc32c/kernel.toml");
    std::fs::copy(manifest, folder.join("kernel.toml")).expect("copied");
    // It adds nothing to each byte, and so makes as many as it takes.
    if build(&folder, "GOOD").is_none() {
        return skips::skip("a_slot_that_makes_no_checksum_is_a_lost_one", "cc is not installed");
    }
    std::fs::rename(folder.join("lib.so"), folder.join("librtl_crc32c.so")).expect("renamed");
    let client = weldfs::Client::connect(format!("{image}.sock")).expect("attaches");
    client.load_kernel(&folder).expect("loaded");
    client.prefer_kernel("crc32c", "rtl").expect("preferred");
    let file = client.open("/log", &weldfs::OpenOptions::new().read(true).write(true).create(true)).expect("opened");
    for (len, errno) in [(100, weldfs::Errno::IO), (3, weldfs::Errno::IO), (0, weldfs::Errno::IO)] {
        let record = vec![7; len];
        let (slot, either) = (weldfs::Placement::Slot, weldfs::Placement::SlotOrCore);
        let append = |how| file.raw().placement(how).append_checksum(file.handle(), Default::default(), &record[..]);
        let before = file.metadata().expect("there").len();
        assert_eq!(append(slot).map(|_| ()), Err(errno), "{len} bytes");
        assert_eq!(file.metadata().expect("there").len(), before, "nothing is appended");
        let done = append(either).expect("a core does it");
        assert_eq!(done.checksum, weldfs_ciscops::functions::crc32c(&record), "{len} bytes");
    }
    let stats: serde_json::Value = serde_json::from_str(&client.stats_json().expect("stats")).expect("JSON");
    assert_eq!(stats["total"]["slot_fallbacks"], 3);
    served.term();
}

/// Foreign code runs while a kernel is loaded: whoever attaches meanwhile does not wait for it.
#[test]
fn a_kernel_that_hangs_while_it_is_loaded_holds_no_client_up() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let served = Served::start(&bench.path("a.img"));
    let socket = format!("{}.sock", image.to_str().expect("text"));
    let folder = package(&bench, "hangs-at-start", 10, ONE);
    if build(&folder, "HANGS_AT_START").is_none() {
        return skips::skip("a_kernel_that_hangs_while_it_is_loaded_holds_no_client_up", "cc is not installed");
    }
    let administrator = weldfs::Client::connect(&socket).expect("attaches");
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| administrator.load_kernel(&folder));
        // Its process is there: the card waits for it.
        let started = || {
            let all = std::fs::read_dir("/proc").expect("processes").flatten();
            all.filter_map(|p| std::fs::read(p.path().join("environ")).ok()).any(|env| {
                let folder = folder.to_str().expect("text").as_bytes();
                env.windows(folder.len()).any(|w| w == folder)
            })
        };
        while !started() {
            assert!(!loading.is_finished(), "{:?}", loading.join());
            std::thread::yield_now();
        }
        let client = weldfs::Client::connect(&socket).expect("attaches");
        client.write("/f", b"x").expect("written");
        assert!(!loading.is_finished(), "it still hangs");
        assert!(loading.join().expect("no panic").is_err());
    });
    served.term();
}

/// What a kernel that does not end keeps busy says so, and what the end of the device ends, too.
#[test]
fn a_port_of_a_kernel_that_computes_is_busy_and_a_device_that_ends_says_so() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let at = |path: &str| bench.inside("a.img", path);
    let folder = package(&bench, "hangs", 10, &format!("[ports]\npeek = [\"sum\"]\n{ONE}"));
    if build(&folder, "HANGS").is_none() {
        let name = "a_port_of_a_kernel_that_computes_is_busy_and_a_device_that_ends_says_so";
        return skips::skip(name, "cc is not installed");
    }
    let served = Served::start(&bench.path("a.img"));
    ok(["kernel", "load", image, folder.to_str().expect("text")]);
    ok(["exec", image, "open /f rw create; write 0 \"0123456789\""]);
    ok(["virt", "add", &at("/v"), "--kernel", "hangs", "--param", "1", &at("/f")]);
    let program = "open /f r; buffer out 64; read 0 8 -> in; kernel hangs(1) in -> out";
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        command.args(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("runs")
    };
    let all = [run(&["cat", &at("/v")]), run(&["exec", image, program])];
    let until = Instant::now() + Duration::from_secs(20);
    let sessions = || json(&ok(["kernel", "ls", image, "--json"]))["slots"].to_string().matches("\"hangs\"").count();
    while sessions() < 2 {
        assert!(Instant::now() < until, "both are in a slot");
        std::thread::sleep(Duration::from_millis(10));
    }
    says(&["kernel", "peek", image, "hangs"], "cannot peek at hangs: it is busy: its ports can be looked at when");
    served.term();
    for (child, what) in all.into_iter().zip(["cannot read ", "cannot run it in "]) {
        let done = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let good = said.contains(what) && said.trim_end().ends_with(": the device ends, and has ended this with it");
        assert!(done.status.code() == Some(1) && said.lines().count() == 1 && good, "{}: {said}", done.status);
    }
}

#[test]
fn a_chain_without_one_of_its_stages_says_which() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let at = |path: &str| bench.inside("a.img", path);
    let of = |stage: &str| {
        format!(
            "[backend.model]\nchain = [{{ kernel = \"rle\", params = [] }}, {{ kernel = \"{stage}\", params = [1] }}]\n"
        )
    };
    let stage = package(&bench, "stage", 10, ONE);
    let manifest = std::fs::read_to_string(stage.join("kernel.toml")).expect("a manifest");
    std::fs::write(stage.join("kernel.toml"), manifest.replace("ff = 30000", "ff = 10")).expect("written");
    if build(&stage, "GOOD").is_none() {
        return skips::skip("a_chain_without_one_of_its_stages_says_which", "cc is not installed");
    }
    let log = bench.path("log");
    let served = Served::logging(&bench.path("a.img"), &log);
    let load = |folder: &Path| weldfs(["kernel", "load", image, folder.to_str().expect("text")]);
    let refused = |name: &str, stage: &str, what: &str| {
        let done = load(&package(&bench, name, 130_000, &of(stage)));
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains(what), "{said}");
    };
    refused("itself", "itself", "/itself: itself: it is a stage of itself");
    refused("back", "rle:hls", "/back: its stage rle:hls is of no kernel or back-end that the device has");
    assert!(load(&stage).status.success());
    assert!(load(&package(&bench, "both", 130_000, &of("stage"))).status.success());
    ok(["exec", image, "open /f rw create; write 0 \"0123456789\""]);
    ok(["virt", "add", &at("/v"), "--kernel", "both", &at("/f")]);
    // A chain keeps none of its stages, but what works in a slot does.
    ok(["kernel", "unload", "--deactivate", image, "stage"]);
    says(&["cat", &at("/v")], "its kernel both is a chain, and its stage stage is gone");
    assert!(load(&stage).status.success());
    assert!(weldfs(["cat", &at("/v")]).status.success(), "and it is whole again");
    // The name of a folder is whatever its owner likes, and no line of the log.
    let folder = bench.path("a\nb");
    std::fs::rename(bench.path("itself"), &folder).expect("moved");
    assert!(!load(&folder).status.success());
    let logged = std::fs::read_to_string(&log).expect("a log");
    assert!(logged.contains("/a\\nb: itself: it is a stage of itself") && !logged.contains("\nb"), "{logged}");
    served.term();
}

/// As an unset one: the program that is asked runs kernels itself.
#[test]
fn an_empty_name_of_the_program_that_runs_kernels_is_none() {
    let bench = Bench::new();
    let folder = package(&bench, "good", 10, ONE);
    if build(&folder, "GOOD").is_none() {
        return skips::skip("an_empty_name_of_the_program_that_runs_kernels_is_none", "cc is not installed");
    }
    let run = |host: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
        command.args(["kernel", "run", folder.to_str().expect("text"), "--param", "5"]).stdin(Stdio::null());
        command.env("WELDFS_KERNEL_HOST", host).output().expect("runs")
    };
    let done = run("");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(!run("/not/there").status.success(), "it is looked at");
}
