//! `weldfs bench insider` and `virtual-cat`: answers, bytes over the link, what is skipped, and that a kernel which
//! answers wrongly fails the run. Counts are compared, times never.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    command.arg("bench").args(args).stdin(Stdio::null());
    command
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_else(|| panic!("{name} is a number in {of}"))
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().unwrap_or_else(|| panic!("{name} is a list in {of}"))
}

/// Without back-ends that are built apart, unless a folder of them is given.
fn insider(dir: &Path, kernels: &Path) -> Command {
    let mut command = bench(&["insider", "--scale", "small", "--rounds", "1", "--place"]);
    command.arg(dir).env("WELDFS_KERNELS", kernels);
    command
}

#[test]
fn seven_applications_in_four_forms_have_equal_answers_and_move_what_they_must() {
    let (dir, kernels) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| dir.path().join(name);
    let mut command = insider(dir.path(), kernels.path());
    command.arg("--json").arg(at("report.json")).arg("--html").arg(at("page.html"));
    let out = command.arg("--markdown").arg(at("tables.md")).output().expect("it runs");
    assert!(out.status.success(), "{}", said(&out));
    let report: Value = serde_json::from_slice(&std::fs::read(at("report.json")).expect("a report")).expect("JSON");
    let apps = list(&report, "apps");
    let names: Vec<_> = apps.iter().map(|a| a["app"].as_str().unwrap_or("")).collect();
    assert_eq!(names, ["grep", "knn", "statistics", "sql", "integrate", "relief", "bitmap"]);
    // Of the bypass's bytes; what a small text's commands cost is in it.
    let most = [0.01, 0.03, 0.01, 0.11, 0.03, 0.04, 0.15];
    for (app, most) in apps.iter().zip(most) {
        let forms = list(app, "forms");
        let of: Vec<_> = forms.iter().map(|f| f["form"].as_str().unwrap_or("")).collect();
        assert_eq!(of, ["posix", "bypass", "pipelined", "in-drive"]);
        assert!(!app["answer"].as_str().unwrap_or("").starts_with("0 "), "something is found: {app}");
        assert!(app["built"].is_null(), "{app}");
        moved(app, forms, most);
        for (at, drive) in list(&report, "drives").iter().enumerate() {
            let factors = ["stack", "pipelining", "offloading", "reduction"];
            let all: f64 = factors.iter().map(|factor| number(&app["breakdown"][at], factor)).product();
            let speedup = forms[3]["speedup"][at].as_f64().expect("a number");
            assert!((all / speedup - 1.0).abs() < 1e-6, "{drive}: {app}");
            let least = number(&forms[3], "drive_bytes") / number(drive, "media_bytes_per_s");
            assert!(number(&forms[3]["modelled"][at], "seconds") >= least, "no faster than the medium: {app}");
        }
        assert!(["host", "kernel", "built"].iter().all(|l| number(&app["lines"], l) > 1.0), "{app}");
        assert!(app["paper"]["drive_lines"].is_u64(), "{app}");
        let hls = app["built_kind"] == "hls";
        assert!(app["budget"].is_null() == hls && (hls || number(&app["budget"]["xcup"], "lut") > 100.0), "{app}");
    }
    let plateaus = list(&report["timeline"], "plateaus");
    assert!(plateaus.len() == 5 && plateaus.iter().all(|p| number(p, "off") <= 0.03), "{plateaus:?}");
    assert_eq!(list(&report, "skipped").len(), 7, "nothing is built in an empty folder");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("skipped: grep as RTL: librtl_grep.so is not built (fpga/rtl/build.py)"), "{text}");
    pages(&at("page.html"), &at("tables.md"));
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 3, "nothing but the reports is left behind");
}

/// What each form moved, as the device counted it.
fn moved(app: &Value, forms: &[Value], most: f64) {
    let writes = app["app"] == "bitmap";
    let (posix, inside) = (&forms[0], &forms[3]);
    assert_eq!(number(&posix["counted"], "commands"), 0.0, "the host's own calls are no commands: {posix}");
    assert!(number(posix, "link_bytes") == number(posix, "drive_bytes"), "{posix}");
    for queued in &forms[1..3] {
        // Through the device's queues: all of it as payload, in commands, and nothing through a kernel.
        let (c, bytes) = (&queued["counted"], number(queued, "drive_bytes"));
        let payload = if writes { "payload_bytes_in" } else { "payload_bytes_out" };
        assert!(number(c, payload) == bytes && number(c, "commands") >= 1.0 && number(c, "slot_ns") == 0.0, "{queued}");
        assert!(number(queued, "link_bytes") > bytes && number(queued, "cycles") == 0.0, "{queued}");
    }
    let (c, bytes) = (&inside["counted"], number(inside, "drive_bytes"));
    let part = number(inside, "link_bytes") / number(&forms[1], "link_bytes");
    assert!(part < most, "{part} of the bytes crossed the link: {app}");
    let (taken, made) = (number(c, "slot_bytes_in"), number(c, "slot_bytes_out"));
    assert!(if writes { made } else { taken } == bytes && bytes == number(posix, "drive_bytes"), "{inside}");
    assert!(number(c, "link_bytes_in") + number(c, "link_bytes_out") >= if writes { taken } else { made }, "{inside}");
    // A flit a cycle, and neither less nor much more; at 250 MHz.
    assert!((1.0..1.2).contains(&(number(inside, "cycles") / (bytes / 64.0))), "{app}");
    assert_eq!(number(c, "slot_ns"), number(inside, "cycles") * 4.0, "{inside}");
}

fn pages(html: &Path, markdown: &Path) {
    let page = std::fs::read_to_string(html).expect("a page");
    assert_eq!(page.matches("<svg").count(), 6, "two plots a drive, the link's and the timeline");
    // The name of SVG itself is the only address in it.
    let addresses = page.matches("http").count() - page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count();
    assert!(addresses == 0 && !page.contains("NaN") && !page.contains("src=") && !page.contains("<script"), "{page}");
    assert!(page.contains("prefers-color-scheme:dark"), "it has dark colours");
    let tables = std::fs::read_to_string(markdown).expect("tables");
    assert_eq!(tables.matches("\n### ").count(), 11, "{tables}");
    let prose = tables.lines().filter(|line| !line.starts_with('|'));
    assert!(prose.clone().all(|line| line.chars().count() <= 120), "{tables}");
}

/// A shared object under the name of a kernel's, of C. None, said, where there is no compiler.
fn compiled(folder: &Path, name: &str, source: &str) -> Option<()> {
    let file = folder.join("kernel.c");
    std::fs::write(&file, source).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fpga/include");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O2", "-fPIC", "-shared", "-o"]).arg(folder.join(name)).arg(&file).arg("-I").arg(include);
    match cc.status() {
        Ok(status) => assert!(status.success(), "cc says {status}"),
        Err(e) => {
            println!("SKIP: a kernel that answers wrongly is not planted: cc: {e}");
            return None;
        }
    }
    std::fs::remove_file(file).unwrap();
    Some(())
}

/// Takes all, makes nothing, and says that this is the answer.
const LIAR: &str = "
#include <stdlib.h>
#include \"weldfs_kernel.h\"
struct weldfs_kernel { int none; };
uint32_t weldfs_kernel_abi(void) { return WELDFS_KERNEL_ABI; }
weldfs_kernel *weldfs_kernel_new(void) { return calloc(1, sizeof(weldfs_kernel)); }
void weldfs_kernel_free(weldfs_kernel *k) { free(k); }
int weldfs_kernel_reset(weldfs_kernel *k, const uint32_t *params, size_t count) { return 0; }
int weldfs_kernel_step_run(weldfs_kernel *k, const uint8_t *in, size_t in_len, int eop, uint8_t *out, size_t out_len,
                           weldfs_kernel_step *step) {
    step->taken = in_len;
    step->done = eop;
    return 0;
}
";

#[test]
fn a_kernel_that_answers_wrongly_or_is_none_fails_the_run() {
    let (dir, kernels) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let json = dir.path().join("report.json");
    std::fs::write(kernels.path().join("librtl_grep.so"), "no library").unwrap();
    let out = insider(dir.path(), kernels.path()).arg("--json").arg(&json).output().expect("it runs");
    let text = said(&out);
    assert!(out.status.code() == Some(1) && text.contains("librtl_grep.so cannot be loaded"), "{text}");
    if compiled(kernels.path(), "librtl_grep.so", LIAR).is_none() {
        return;
    }
    let out = insider(dir.path(), kernels.path()).arg("--json").arg(&json).output().expect("it runs");
    let text = said(&out);
    assert!(out.status.code() == Some(1) && text.contains("grep: answers differ"), "{text}");
    assert!(text.contains("'0 matches, CRC-32C 00000000' by in drive, RTL"), "{text}");
    assert!(!json.exists() && out.stdout.is_empty(), "no figure of a wrong answer is reported");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0, "nothing is left behind");
}

#[test]
fn kernels_that_are_built_run_in_the_drive_and_their_cycles_are_counted() {
    let own = Path::new(env!("CARGO_BIN_EXE_weldfs")).ancestors().nth(2).expect("a target folder").join("kernels");
    let kernels = std::env::var_os("WELDFS_KERNELS").map_or(own, Into::into);
    if !kernels.join("librtl_grep.so").exists() {
        println!("SKIP: RTL in the drive: {} has no librtl_grep.so (fpga/rtl/build.py)", kernels.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("report.json");
    let out = insider(dir.path(), &kernels).arg("--json").arg(&json).output().expect("it runs");
    assert!(out.status.success(), "{}", said(&out));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON");
    let apps = list(&report, "apps");
    let built: Vec<_> = apps.iter().filter(|app| app["built"].is_object()).collect();
    assert_eq!(built.len() + list(&report, "skipped").len(), 7);
    for app in built {
        let (of, run) = (&app["built"], &app["built"]["run"]);
        assert!(of["answer"] == app["answer"], "the same data, the same answer: {app}");
        let per_flit = number(run, "cycles") / (number(run, "drive_bytes") / 64.0);
        // RTL counts its own, with what fills and drains its pipeline; the bitmap's flits in and out share a port.
        assert!((1.0..1.3).contains(&per_flit), "{per_flit}: {app}");
        assert_eq!(number(&run["counted"], "slot_ns"), number(run, "cycles") * 4.0, "{run}");
        let rtl = of["backend"] == "rtl";
        assert!(!rtl || number(run, "cycles") != number(&app["forms"][3], "cycles"), "counted by another: {app}");
    }
}

#[test]
fn a_virtual_cat_moves_less_than_two_percent_of_a_text() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("report.json");
    let size = std::env::var("WELDFS_CAT_BYTES").unwrap_or_else(|_| "64M".to_owned());
    let out = bench(&["virtual-cat", "--bytes", &size, "--json"]).arg(&json).output().expect("it runs");
    assert!(out.status.success(), "{}", said(&out));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON");
    let bytes = number(&report, "bytes");
    assert!(bytes >= f64::from(64 << 20), "{report}");
    assert!(report["answer"][0] == report["answer"][1], "{report}");
    assert!(!report["answer"][0].as_str().unwrap_or("0 ").starts_with("0 "), "{report}");
    let (host, drive) = (&report["host"], &report["drive"]);
    for way in [host, drive] {
        let link = number(&way["counted"], "link_bytes_in") + number(&way["counted"], "link_bytes_out");
        assert!(link == number(way, "link_bytes") && (link / bytes - number(way, "part")).abs() < 1e-9, "{way}");
    }
    assert!(number(host, "link_bytes") > bytes && number(drive, "part") < 0.02, "{report}");
    assert!(number(drive, "modelled_link_ms") < number(host, "modelled_link_ms") * 0.02, "{report}");
    assert!(number(&drive["counted"], "slot_bytes_in") == bytes && number(&host["counted"], "slot_bytes_in") == 0.0);
}

#[test]
fn values_that_cannot_be_are_refused_with_a_sentence() {
    for (args, why) in [
        (&["virtual-cat", "--bytes", "4096"][..], "'4096' is not from 1M to 64G"),
        (&["virtual-cat", "--bytes", "many"], "'many' is not a size"),
        (&["insider", "--scale", "huge"], "invalid value 'huge'"),
        (&["insider", "--rounds", "0"], "0 is not in 1..=99"),
    ] {
        let out = bench(args).output().expect("it runs");
        assert!(out.status.code() == Some(2) && said(&out).contains(why), "{args:?}: {}", said(&out));
    }
    for args in [&["virtual-cat", "--bytes", "1M", "--profile", "/none.toml"][..], &["insider", "--place", "/none"]] {
        let out = bench(args).output().expect("it runs");
        assert!(out.status.code() == Some(1) && said(&out).contains("/none"), "{args:?}: {}", said(&out));
    }
}
