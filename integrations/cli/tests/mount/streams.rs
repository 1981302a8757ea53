//! Virtual files in a mount: every program reads and writes them as streams, and is told what they lack.

use crate::rig::{NOBODY, Place, fails, ok, shell_as, usable, weldfs};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn virtual_files_are_read_to_their_end() {
    if !usable("virtual_files_are_read_to_their_end") {
        return;
    }
    let place = Place::new("64M");
    let mounted = place.mount(&[]);
    fs::write(place.at("data"), "needle here\nnothing\nanother needle\n".repeat(5000)).expect("write");
    let spec = ["--kernel", "grep", "--param", "text:needle"];
    ok(weldfs(["virt", "add"]).arg(place.inside("/rows")).args(spec).arg(place.inside("/data")));
    let read = fs::read(place.at("rows")).expect("read");
    assert_eq!(fs::metadata(place.at("rows")).expect("stat").len(), 0);
    let inside = weldfs(["cat"]).arg(place.inside("/rows")).output().expect("runs");
    assert!(inside.status.success() && inside.stdout == read && !read.is_empty(), "{} bytes", read.len());
    mounted.unmount();
}

/// What a name lacks that is there is not ESTALE.
#[test]
fn what_a_virtual_file_lacks_is_told_to_who_opens_it() {
    if !usable("what_a_virtual_file_lacks_is_told_to_who_opens_it") {
        return;
    }
    let place = Place::new("64M");
    let mounted = place.mount(&[]);
    fs::write(place.at("data"), "0123456789\n").expect("write");
    let add = |name: &str, kernel: &[&str], real: &str| {
        ok(weldfs(["virt", "add"]).arg(place.inside(name)).arg("--kernel").args(kernel).arg(place.inside(real)));
    };
    add("/same", &["pass-through"], "/data");
    add("/in", &["rle", "--write"], "/data");
    let cases: [(&str, &[&str], &str, &str); 7] = [
        ("unknown", &["no-such-kernel"], "/data", "No such file or directory"),
        ("gone", &["pass-through"], "/none", "No such file or directory"),
        ("recursive", &["pass-through"], "/same", "Too many levels of symbolic links"),
        ("shrunk", &["pass-through"], "/data@0+99", "No data available"),
        ("wrong", &["grep"], "/data", "Invalid argument"),
        ("bad", &["lz4", "--param", "1"], "/data", "Bad message"),
        ("folder", &["pass-through"], "/", "Is a directory"),
    ];
    for (name, kernel, real, what) in cases {
        add(&format!("/{name}"), kernel, real);
        let (_, why) = fails(Command::new("cat").arg(place.at(name)));
        assert!(why.contains(what), "{name}: {why}");
    }
    let (_, why) = fails(Command::new("cat").arg(place.at("in")));
    assert!(why.contains("Operation not permitted"), "{why}");
    let (_, why) = fails(Command::new("cp").args([place.at("data"), place.at("same")]));
    assert!(why.contains("Operation not permitted"), "{why}");
    mounted.unmount();
}

#[test]
fn programs_read_and_write_virtual_files_as_streams() {
    if !usable("programs_read_and_write_virtual_files_as_streams") {
        return;
    }
    let place = Place::new("64M");
    let mounted = place.mount(&["--allow-other"]);
    let text: String = (0..50_000).map(|n| format!("line {n}\n")).collect();
    fs::write(place.at("text"), &text).expect("write");
    fs::write(place.at("out"), "something longer than what comes").expect("write");
    let add = |name: &str, args: &[&str], real: &str| {
        ok(weldfs(["virt", "add"]).arg(place.inside(name)).args(args).arg(place.inside(real)));
    };
    add("/same", &["--kernel", "pass-through"], "/text");
    // One that others may write to and not read.
    add("/in", &["--kernel", "rle", "--write", "--truncate", "--mode", "600"], "/out");
    add("/part", &["--kernel", "rle", "--write"], "/out@0+2");
    fs::set_permissions(place.at("in"), PermissionsExt::from_mode(0o602)).expect("chmod");
    fs::set_permissions(place.at("out"), PermissionsExt::from_mode(0o666)).expect("chmod");
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        ok(command.arg("-ec").arg(script).current_dir(place.root()))
    };
    let said = shell(
        "stat -c '%s %a %F' same; cmp same text; wc -l < same; wc -c < same; head -n 1 same; tail -n 1 same
         grep -c 'line 4999.$' same
         cp same copy; cmp copy text; cat same same | wc -c
         dd if=same bs=64k status=none | cmp - text; dd if=same bs=4k iflag=direct status=none | cmp - text
         dd if=same bs=7 count=2 status=none | wc -l",
    );
    let twice = 2 * text.len();
    let expected = format!("0 644 regular empty file\n50000\n{}\nline 0\nline 49999\n10\n{twice}\n2\n", text.len());
    assert_eq!(said, expected);
    // Two streams of one name at once, and pinned while one is open.
    let said = shell("cat same | cat - same | wc -c; exec 3< same; head -c 1 <&3 > /dev/null; ! truncate -s 0 text");
    assert_eq!(said.trim(), twice.to_string());
    let written = |script: &str, expected: &str| {
        shell(script);
        assert_eq!(fs::read_to_string(place.at("out")).expect("reads"), expected, "{script}");
    };
    written("printf '\\003a\\002b' > in", "aaabb");
    written("printf '\\002c' >> in", "cc");
    written("printf '\\004d' | dd of=in conv=fsync status=none", "dddd");
    written("printf '\\001e' > pair; cp pair in", "e");
    ok(&mut shell_as(NOBODY, "", &format!("printf '\\002f' > {}", place.at("in").display())));
    assert_eq!(fs::read_to_string(place.at("out")).expect("reads"), "ff");
    // What the end of a stream finds wrong is an error of the close.
    let cp = |from: &str, to: &str| fails(Command::new("cp").args([place.at(from), place.at(to)])).1;
    fs::write(place.at("five"), b"\x05x").expect("write");
    assert!(cp("five", "part").contains("File too large"));
    fs::write(place.at("odd"), b"\x05").expect("write");
    assert!(cp("odd", "in").contains("Bad message"));
    mounted.unmount();
}
