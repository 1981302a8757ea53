//! What verbs do with their arguments: several names of which some fail, and names that are no text.

use crate::images::{Bench, Served, fails, json, ok, weldfs};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Runs a verb of which something fails: what it printed, when it has one line on stderr for `missing` and code 1.
fn in_part(args: &[&str], missing: &str) -> String {
    let out = weldfs(args);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), said.lines().count()), (Some(1), 1), "{args:?}: {said}");
    assert!(said.contains(missing), "{args:?}: {said}");
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn a_name_that_fails_keeps_the_others_from_nothing() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    let image = image.to_str().expect("text");
    let at = |path: &str| bench.inside("a.img", path);
    fs::write(bench.path("f"), b"content").expect("write");
    ok(["put", bench.path("f").to_str().expect("text"), &at("/f")]);
    let (none, f) = (at("/none"), at("/f"));
    assert_eq!(in_part(&["cat", &none, &f], "/none"), "content");
    assert_eq!(in_part(&["get", &none, &f, "-"], "/none"), "content");
    assert_eq!(in_part(&["find", &none, &f], "/none"), "/f\n");
    assert_eq!(in_part(&["ls", &none, &f], "/none"), "/f\n");
    assert_eq!(in_part(&["du", "-b", "--apparent-size", &none, &f], "/none"), "7\t/f\n");
    assert!(in_part(&["stat", &none, &f], "/none").contains("path: /f"));
    for verb in ["stat", "ls", "find", "du"] {
        let found = json(&in_part(&[verb, "--json", &none, &f], "/none"));
        assert_eq!((found.as_array().map(Vec::len), found[0]["path"].as_str()), (Some(1), Some("/f")), "{verb}");
    }
    let found = json(&in_part(&["df", "--json", &none, image], "/none"));
    assert_eq!((found.as_array().map(Vec::len), found[0]["image"].as_str()), (Some(1), Some(image)));
    assert_eq!(in_part(&["df", &none], "/none"), "");
    in_part(&["mkdir", &at("/none/d"), &at("/d")], "/none/d");
    in_part(&["chmod", "600", &none, &f], "/none");
    in_part(&["chown", "--no-dereference", &own(), &none, &f], "/none");
    in_part(&["truncate", "-s", "3", &at("/none/x"), &f], "/none/x");
    assert_eq!(json(&ok(["stat", "--json", &f]))[0]["mode"], "0600");
    in_part(&["ln", &none, &f, &at("/d")], "/d/none");
    in_part(&["mv", &none, &f, &at("/d/")], "/none");
    assert_eq!((ok(["ls", &at("/d")]), ok(["cat", &at("/d/f")])), ("f\n".into(), "con".into()));
    in_part(&["sync", &none, image], "/none");
    in_part(&["rm", &none, &at("/d/f")], "/none");
    assert_eq!(ok(["find", &at("/d")]), "/d\n");
}

/// Who runs this, as `chown` takes it.
fn own() -> String {
    format!("{}:{}", rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

#[test]
fn what_is_named_twice_counts_once() {
    let bench = Bench::new();
    bench.image("a.img", "pmem");
    bench.image("b.img", "pmem");
    fs::write(bench.path("f"), [7; 5000]).expect("write");
    for image in ["a.img", "b.img"] {
        ok(["mkdir", "-p", &bench.inside(image, "/t/d")]);
        ok(["put", bench.path("f").to_str().expect("text"), &bench.inside(image, "/t/d/f")]);
    }
    let (a, b) = (|path: &str| bench.inside("a.img", path), bench.inside("b.img", "/t"));
    let du = |places: &[&str]| {
        let args = ["du", "-scb", "--apparent-size"];
        ok(args.iter().chain(places)).lines().last().expect("a total").to_owned()
    };
    assert_eq!(du(&[&a("/t"), &a("/t")]), "5000\ttotal");
    assert_eq!(du(&[&a("/t/d/f"), &a("/t")]), "5000\ttotal");
    assert_eq!(du(&[&a("/t"), &b, &a("/t/d")]), "10000\ttotal", "another image between them changes nothing");
}

#[test]
fn names_that_are_no_text_work_in_every_verb() {
    let bench = Bench::new();
    let odd = |name: &[u8]| bench.dir.path().join(OsStr::from_bytes(name));
    let image = odd(b"i\xff.img");
    let inside = |path: &[u8]| -> OsString { OsString::from_vec([image.as_os_str().as_bytes(), b":", path].concat()) };
    let run = |args: &[&OsStr]| ok(args);
    let s = OsStr::new;
    let hex: String = image.as_os_str().as_bytes().iter().map(|b| format!("{b:02x}")).collect();
    let of_image = |text: &str| {
        let value = json(text);
        let value = if value.is_array() { value[0].clone() } else { value };
        assert!(value["image"].as_str().is_some_and(|name| name.ends_with("i\u{fffd}.img")), "{value}");
        assert_eq!(value["image_hex"], hex.as_str(), "{value}");
        value
    };
    of_image(&run(&[s("mkfs"), image.as_ref(), s("--size=48M"), s("--json")]));
    let host = odd(b"h\xfe");
    fs::write(&host, b"content").expect("write");
    let (f, g) = (inside(b"/f\xfd"), inside(b"/g\xfc"));
    run(&[s("put"), host.as_ref(), &f]);
    assert_eq!(run(&[s("cat"), &f]), "content");
    run(&[s("cp"), &f, &g]);
    run(&[s("ln"), s("-s"), OsStr::from_bytes(b"to\xfb"), &inside(b"/l")]);
    let link = weldfs([s("ls"), s("-l"), &inside(b"/l")]).stdout;
    assert!(link.ends_with(b"/l -> to\xfb\n"), "{}", String::from_utf8_lossy(&link));
    let link = json(&run(&[s("stat"), s("--json"), &inside(b"/l")]))[0].clone();
    assert_eq!((&link["target"], &link["target_hex"]), (&"to\u{fffd}".into(), &"746ffb".into()));
    let out = odd(b"out\xfa");
    run(&[s("get"), &g, out.as_ref()]);
    assert_eq!(fs::read(&out).expect("there"), b"content");
    let output = OsString::from_vec([b"OUT=", odd(b"o\xf9").as_os_str().as_bytes()].concat());
    run(&[
        s("exec"),
        image.as_ref(),
        s("open /copy rw create; write 0 \"x\"; read 0 1 -> @OUT"),
        s("--output"),
        &output,
    ]);
    assert_eq!(fs::read(odd(b"o\xf9")).expect("there"), b"x");
    run(&[s("mv"), &g, &inside(b"/moved\xf8")]);
    for verb in ["info", "df", "fsck", "scrub"] {
        of_image(&run(&[s(verb), s("--json"), image.as_ref()]));
    }
    let served = Served::start(&image);
    let info = of_image(&run(&[s("info"), s("--json"), image.as_ref()]));
    assert!(info["socket_hex"].as_str().is_some_and(|hex| hex.ends_with("2e736f636b")), "{info}");
    assert_eq!(run(&[s("cat"), &f]), "content");
    served.term();
}

/// Slashes in front are one, so that what is shown is what would be typed.
#[test]
fn a_path_that_begins_with_two_slashes_is_the_one_with_one() {
    let bench = Bench::new();
    bench.image("a.img", "pmem");
    ok(["mkdir", &bench.inside("a.img", "//d")]);
    assert_eq!(ok(["find", &bench.inside("a.img", "//")]), "/\n/d\n");
    let (code, said) = fails(["ls", bench.path("a.img").to_str().expect("text")]);
    assert!(code == 2 && said.contains("a.img:/'"), "{said}");
}
