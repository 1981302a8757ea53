//! `weldfs virt`, and virtual files used by name: by verbs, and by programs that know nothing of them.

use std::path::PathBuf;
use std::process::{Command, Output};

struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    fn new() -> Image {
        let image = Image { dir: tempfile::tempdir().unwrap() };
        image.ok(&["mkfs", &image.file(), "--size=32M"]);
        image
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self) -> String {
        self.path("disk.img").display().to_string()
    }

    /// A name inside.
    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.file())
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_weldfs")).args(args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> Vec<u8> {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    }

    /// The exit code and the sentence of what fails.
    fn fails(&self, args: &[&str]) -> (i32, String) {
        let out = self.run(args);
        assert!(!out.status.success(), "{args:?}");
        (out.status.code().unwrap(), String::from_utf8(out.stderr).unwrap())
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        std::fs::write(self.path("bytes"), bytes).unwrap();
        self.ok(&["put", self.path("bytes").to_str().unwrap(), &self.at(path)]);
    }
}

#[test]
fn a_virtual_file_is_made_read_listed_and_removed() {
    let image = Image::new();
    image.put("/log", b"one error\nnone\nanother error\n");
    let name = image.at("/.virt/errors");
    let log = image.at("/log");
    let add = ["virt", "add", &name, "--kernel", "grep", "--param", "text:error", &log];
    let (code, why) = image.fails(&add);
    assert!(code == 1 && why.contains("there is no directory for it (--parents makes one)"), "{why}");
    image.ok(&[&add[..], &["--parents"]].concat());
    let hits: Vec<u8> = [0, 4, 2, 8].iter().flat_map(|n: &u32| n.to_le_bytes()).collect();
    assert_eq!(image.ok(&["cat", &name]), hits);
    let out = image.path("out");
    image.ok(&["get", &name, out.to_str().unwrap()]);
    assert_eq!(std::fs::read(&out).unwrap(), hits);
    let listed = String::from_utf8(image.ok(&["virt", "ls", &image.at("/")])).unwrap();
    assert_eq!(listed, "/.virt/errors  grep <- /log\n");
    let json: serde_json::Value = serde_json::from_slice(&image.ok(&["virt", "ls", "--json", &image.at("/")])).unwrap();
    assert_eq!(json[0]["kernel"], "grep");
    assert_eq!(json[0]["params"][0], 5);
    assert_eq!((&json[0]["direction"], json[0]["ranges"][0]["path"].as_str()), (&"read".into(), Some("/log")));
    assert!(json[0]["ranges"][0]["length_bytes"].is_null());
    image.ok(&["fsck", &image.file()]);
    // Only a virtual file is removed by it.
    let (code, why) = image.fails(&["virt", "rm", &log]);
    assert!(code == 1 && why.contains("is no virtual file"), "{why}");
    image.ok(&["virt", "rm", &name]);
    assert_eq!(image.ok(&["virt", "ls", &image.at("/")]), b"");
    image.ok(&["fsck", &image.file()]);
}

#[test]
fn what_is_wrong_with_one_is_one_sentence() {
    let image = Image::new();
    image.put("/f", b"0123456789");
    let (name, f) = (image.at("/v"), image.at("/f"));
    let usage = |more: &[&str]| {
        let (code, why) = image.fails(&[&["virt", "add", &name][..], more].concat());
        assert_eq!(code, 2, "{why}");
        why
    };
    assert!(usage(&["--kernel", "Grep", &f]).contains("'Grep' is no kernel's name"));
    let range = |at: &str| usage(&["--kernel", "grep", &format!("{f}@{at}")]);
    assert!(range("7+0").contains("/f@7: a range of no bytes"));
    for beyond in ["9223372036854775807+1", "9223372036854775808", "18446744073709551616", "5+18446744073709551615"] {
        let at = beyond.split('+').next().expect("an offset").replace("616", "615");
        let said = range(beyond);
        assert!(said.contains(&format!("/f@{at}: the range lies beyond the largest file (2^63 - 1 bytes)")), "{said}");
    }
    assert!(usage(&["--kernel", "grep", "--param", "many", &f]).contains("'many' is not a number"));
    assert!(usage(&["--kernel", "rle", "--write", &f, &f]).contains("--write takes one file"));
    assert!(usage(&["--kernel", "rle", "--truncate", &f]).contains("--write"));
    image.ok(&["virt", "add", &name, "--kernel", "no-such-kernel", &f]);
    let (code, why) = image.fails(&["cat", &name]);
    assert!(code == 1 && why.contains("the device has no kernel no-such-kernel"), "{why}");
    image.ok(&["virt", "rm", &name]);
    image.ok(&["virt", "add", &name, "--kernel", "grep", "--param", "text:x", &image.at("/not/there")]);
    let (code, why) = image.fails(&["cat", &name]);
    assert!(code == 1 && why.contains("/not/there, which it streams, is not there"), "{why}");
    image.ok(&["virt", "rm", &name]);
    image.ok(&["virt", "add", &name, "--kernel", "pass-through", &format!("{f}@2+4")]);
    assert_eq!(image.ok(&["cat", &name]), b"2345");
    let (_, why) = image.fails(&["virt", "add", &name, "--kernel", "pass-through", &f]);
    assert!(why.contains("cannot make virtual file") && why.contains("exists"), "{why}");
}

#[test]
fn programs_that_know_nothing_of_it_read_and_write_it_by_name() {
    let image = Image::new();
    let text: String = (0..20_000).map(|i| format!("line {i}\n")).collect();
    image.put("/text", text.as_bytes());
    image.put("/out", b"");
    image.ok(&["virt", "add", &image.at("/same"), "--kernel", "pass-through", &image.at("/text")]);
    image.ok(&["virt", "add", &image.at("/in"), "--kernel", "rle", "--write", "--truncate", &image.at("/out")]);
    let script = "set -e
        cat /weld/same | cmp - /weld/text
        wc -l < /weld/same
        head -n 2 /weld/same
        tail -n 1 /weld/same
        grep -c 'line 1999.$' /weld/same
        cp /weld/same /weld/copy; cmp /weld/copy /weld/text
        stat -c %s /weld/same
        printf '\\003a\\002b' > /weld/in; cat /weld/out; echo
        if cat /weld/in 2> /dev/null; then echo read; else echo refused; fi";
    let said = image.ok(&["run", "--image", &image.file(), "--", "sh", "-c", script]);
    let said = String::from_utf8(said).unwrap();
    assert_eq!(said, "20000\nline 0\nline 1\nline 19999\n10\n0\naaabb\nrefused\n");
}

/// Read by offsets one behind the other, in pieces of any size: nothing of it is kept, and a piece that the device does
/// not give again is not taken for the end.
#[test]
fn a_program_that_names_its_offsets_reads_one_to_its_end() {
    let image = Image::new();
    let lines: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    image.put("/text", lines.as_bytes());
    image.ok(&["virt", "add", &image.at("/same"), "--kernel", "pass-through", &image.at("/text")]);
    let script = r#"
import os
for size in (100, 4096, 5000, 30_000):
    fd, got = os.open("/weld/same", os.O_RDONLY), b""
    while part := os.pread(fd, size, len(got)): got += part
    os.close(fd); print(len(got), got == open("/weld/text", "rb").read())
"#;
    let said = String::from_utf8(image.ok(&["run", "--image", &image.file(), "--", "python3", "-c", script])).unwrap();
    assert_eq!(said, format!("{} True\n", lines.len()).repeat(4));
}

/// What opening, reading and writing one fails with is one line that names what is wrong behind it, and exit code 1.
#[test]
fn what_is_wrong_behind_one_is_named() {
    let image = Image::new();
    image.put("/text", b"one error\nnone\n");
    image.put("/short", b"0123456789");
    let at = |path: &str| image.at(path);
    let add = |name: &str, more: &[&str]| {
        image.ok(&[&["virt", "add", &at(name), "--kernel"][..], more].concat());
    };
    add("/same", &["pass-through", &at("/text")]);
    add("/recursive", &["pass-through", &at("/text"), &at("/same")]);
    add("/shrunk", &["pass-through", &at("/short@4+100")]);
    add("/folder", &["pass-through", &at("/")]);
    add("/none", &["grep", &at("/text")]);
    add("/wrong", &["grep", "--param", "5", "--param", "1", "--param", "2", "--param", "3", &at("/text")]);
    add("/unknown", &["no-such-kernel", &at("/text")]);
    add("/in", &["rle", "--write", "--truncate", &at("/short")]);
    add("/part", &["rle", "--write", &at("/short@0+2")]);
    add("/bad", &["lz4", "--param", "1", &at("/text")]);
    image.ok(&["ln", "-s", "same", &at("/link")]);
    let (bytes, out) = (image.path("bytes"), image.path("out"));
    let (bytes, out) = (bytes.to_str().unwrap(), out.to_str().unwrap());
    let says = |args: &[&str], what: &str| {
        let (code, why) = image.fails(args);
        assert!(code == 1 && why.lines().count() == 1 && why.contains(what), "{args:?}: {code}: {why}");
    };
    for (name, what) in [
        ("/recursive", "/same, which it streams, is a virtual file itself"),
        ("/shrunk", "/short, which it streams, ends before byte 104"),
        ("/folder", "/, which it streams, is a directory"),
        ("/none", "grep takes 2 to 9 parameters (length of the needle, then its bytes, four a word), not 0"),
        ("/wrong", "grep refuses the values of its parameters (length"),
        ("/unknown", "the device has no kernel no-such-kernel"),
        ("/in", "a virtual file that can only be written"),
        ("/bad", "its kernel lz4 does not take what it is given"),
    ] {
        says(&["cat", &at(name)], what);
        says(&["get", &at(name), out], what);
        says(&["cp", &at(name), &at("/copy")], what);
    }
    std::fs::write(bytes, b"\x03a\x02b").unwrap();
    says(&["put", bytes, &at("/same")], "/same: it is a virtual file that can only be read");
    says(&["cp", &at("/text"), &at("/link")], "/link: it is a virtual file that can only be read");
    says(&["put", bytes, &at("/part")], "its kernel rle makes more than its range has room for");
    says(
        &["cp", &at("/text"), &at("/in")],
        "its kernel rle does not take what it is given; what it made before is in the file",
    );
    says(&["truncate", "--size", "0", &at("/in")], "it is a virtual file, which has no bytes of its own");
    says(&["truncate", "--size", "0", &at("/same")], "it is a virtual file that can only be read");
    says(&["virt", "add", &at("/no/x"), "--kernel", "rle", &at("/text")], "no directory for it (--parents makes one)");
    says(&["virt", "add", &at("/"), "--kernel", "rle", &at("/text")], "something with this name exists");
    // A link to one is read and listed as it is, and not removed as if it were it.
    assert_eq!(image.ok(&["cat", &at("/link")]), b"one error\nnone\n");
    assert_eq!(image.ok(&["virt", "ls", &at("/link")]), b"/link  pass-through <- /text\n");
    says(&["virt", "rm", &at("/link")], "/link is no virtual file");
    image.ok(&["cat", &at("/link")]);
    // There is nothing in one.
    says(&["cat", &at("/same/x")], "/same/x: Not a directory");
    says(&["virt", "add", &at("/link/x"), "--kernel", "rle", &at("/text")], "/link/x: Not a directory");
}

#[test]
fn programs_are_told_what_is_wrong_behind_one() {
    let image = Image::new();
    image.put("/text", b"0123456789");
    let at = |path: &str| image.at(path);
    for (name, kernel, real) in [
        ("/same", "pass-through", "/text"),
        ("/unknown", "no-such-kernel", "/text"),
        ("/recursive", "pass-through", "/same"),
        ("/shrunk", "pass-through", "/text@1+10"),
        ("/wrong", "grep", "/text"),
    ] {
        image.ok(&["virt", "add", &at(name), "--kernel", kernel, &at(real)]);
    }
    image.ok(&["virt", "add", &at("/part"), "--kernel", "rle", "--write", &at("/text@0+2")]);
    let script = "cd /weld
        dd if=same bs=3 count=2 status=none; echo; dd if=same bs=4 skip=1 status=none; echo
        stat -c '%s %a %F' same; wc -c same; sha256sum same text | cut -d' ' -f1 | uniq | wc -l
        for name in unknown recursive shrunk wrong part; do cat $name 2>&1; done
        printf '\\005x' > /tmp/virt-test-$$; cp /tmp/virt-test-$$ part 2>&1; cp /tmp/virt-test-$$ same 2>&1
        rm /tmp/virt-test-$$
        exec 3< same; head -c 1 <&3 > /dev/null; truncate -s 0 text 2>&1; true";
    let said = String::from_utf8(image.ok(&["run", "--image", &image.file(), "--", "sh", "-c", script])).unwrap();
    let expected = "012345\n456789\n0 644 regular empty file\n10 same\n1\n\
        cat: unknown: No such file or directory\n\
        cat: recursive: Too many levels of symbolic links\n\
        cat: shrunk: No data available\n\
        cat: wrong: Invalid argument\n\
        cat: part: Operation not permitted\n\
        cp: failed to close 'part': File too large\n\
        cp: cannot create regular file 'same': Operation not permitted\n\
        truncate: failed to truncate 'text' at 0 bytes: Text file busy\n";
    assert_eq!(said, expected);
}

/// What a program had open is let go of when close returns, and by its end at the latest: the next command of a script
/// finds the real file free. Each of the ways that a program has to close.
#[test]
fn the_real_file_is_free_as_soon_as_a_program_has_closed() {
    let image = Image::new();
    image.put("/text", &[b'x'; 2 << 20]);
    image.ok(&["virt", "add", &image.at("/same"), "--kernel", "pass-through", &image.at("/text")]);
    let script = r#"cd /weld; cut() { truncate -s $1 text 2>&1 && echo $1; }
        cat same > /dev/null; cut 99
        exec 3< same; head -c 1 <&3 > /dev/null; cut 98; exec 3<&-; cut 97
        head -c 5 < same > /dev/null; cut 96
        python3 -c 'import os
def opened():
    fd = os.open("same", os.O_RDONLY)
    os.read(fd, 10)
    return fd
def cut(to):
    os.truncate("text", to)
    print(to, flush=True)
fd = opened()
os.close(fd)
cut(95)
fd = opened()
os.closerange(fd, fd + 1)
cut(94)
fd, other = opened(), os.open("/dev/null", os.O_RDONLY)
os.dup2(other, fd)
cut(93)
fd = opened()
os.posix_spawn("/bin/true", ["true"], os.environ)
os.wait()
os._exit(0)'
        cut 92
        mkfifo "$1"; exec 3< same; cat "$1" > /dev/null & exec 3<&-; cut 91; echo > "$1"; wait; cut 90"#;
    // A child has it, until it is told to end.
    let pipe = image.path("pipe").display().to_string();
    let args = ["run", "--image", &image.file(), "--", "sh", "-c", script, "sh", &pipe];
    let said = String::from_utf8(image.ok(&args)).unwrap();
    let busy = |to: u32| format!("truncate: failed to truncate 'text' at {to} bytes: Text file busy\n");
    let expected = format!("99\n{}97\n96\n95\n94\n93\n92\n{}90\n", busy(98), busy(91));
    assert_eq!(said, expected);
    // The device has let go of it by then, and not only when it is asked to cut.
    let script = r#"head -c 5 /weld/same > /dev/null; "$1" stats --json "$WELDFS_SOCKET""#;
    let weldfs = env!("CARGO_BIN_EXE_weldfs");
    let said = image.ok(&["run", "--image", &image.file(), "--", "sh", "-c", script, "sh", weldfs]);
    let stats: serde_json::Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(stats["usage"]["open_files"], 0);
}

#[test]
fn put_and_cp_write_through_the_kernel_and_copy_what_it_makes() {
    let image = Image::new();
    let at = |path: &str| image.at(path);
    image.put("/out", b"something longer than what comes");
    image.ok(&["virt", "add", &at("/in"), "--kernel", "rle", "--write", "--truncate", &at("/out")]);
    image.put("/in", b"\x03a\x02b");
    assert_eq!(image.ok(&["cat", &at("/out")]), b"aaabb");
    // More than one command takes, with a hole in it: runs of no bytes.
    let pairs: Vec<u8> = [1u8, b'x'].repeat(1 << 20);
    let sparse = image.path("sparse");
    let file = std::fs::File::create(&sparse).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &pairs, 4 << 20).unwrap();
    let said = image.ok(&["put", "--json", sparse.to_str().unwrap(), &at("/in")]);
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
    assert_eq!((said["files"].as_u64(), said["copied_bytes"].as_u64()), (Some(1), Some(6 << 20)));
    assert_eq!(image.ok(&["cat", &at("/out")]), vec![b'x'; 1 << 20]);
    image.put("/pairs", b"\x02p");
    image.ok(&["cp", &at("/pairs"), &at("/in")]);
    image.ok(&["virt", "add", &at("/twice"), "--kernel", "pass-through", &at("/out"), &at("/out")]);
    image.ok(&["cp", &at("/twice"), &at("/copy")]);
    assert_eq!(image.ok(&["cat", &at("/copy")]), b"pppp");
    image.ok(&["virt", "rm", &at("/in"), &at("/twice")]);
}

/// A name may hold what moves a terminal's cursor, or begins a line that looks like a message.
#[test]
fn names_with_control_characters_are_written_out_in_messages_and_listings() {
    let image = Image::new();
    let odd = "/a\u{1b}[31m\nweldfs: forged";
    let plain = "/a\\u{1b}[31m\\nweldfs: forged";
    let name = image.at(odd);
    let (_, why) = image.fails(&["virt", "add", &image.at(&format!("{odd}/x")), "--kernel", "grep", &name]);
    assert!(why.lines().count() == 1 && why.contains(plain) && !why.contains('\u{1b}'), "{why}");
    image.ok(&["virt", "add", &name, "--kernel", "grep", "--param", "text:x", &image.at("/not/here\n")]);
    for args in [["cat", &name], ["get", &name]] {
        let out = image.path("out");
        let all = [&args[..], &[out.to_str().unwrap()][..if args[0] == "get" { 1 } else { 0 }]].concat();
        let (code, why) = image.fails(&all);
        let good = why.lines().count() == 1 && why.contains(plain) && why.contains("/not/here\\n, which it streams,");
        assert!(code == 1 && good, "{why}");
    }
    let listed = String::from_utf8(image.ok(&["virt", "ls", &image.at("/")])).unwrap();
    assert_eq!(listed, format!("{plain}  grep <- /not/here\\n\n"));
    let json: serde_json::Value = serde_json::from_slice(&image.ok(&["virt", "ls", "--json", &image.at("/")])).unwrap();
    assert_eq!((json[0]["path"].as_str(), json[0]["ranges"][0]["path"].as_str()), (Some(odd), Some("/not/here\n")));
    // Bytes that are no text have a field of their own.
    use std::os::unix::ffi::OsStringExt;
    let raw = std::ffi::OsString::from_vec([image.at("/").as_bytes(), b"\xff"].concat());
    let mut add = Command::new(env!("CARGO_BIN_EXE_weldfs"));
    add.args(["virt", "add"]).arg(&raw).args(["--kernel", "grep"]).arg(&raw);
    assert!(add.status().unwrap().success());
    image.ok(&["virt", "rm", &name]);
    let json: serde_json::Value = serde_json::from_slice(&image.ok(&["virt", "ls", "--json", &image.at("/")])).unwrap();
    assert_eq!((&json[0]["path_hex"], &json[0]["ranges"][0]["path_hex"]), (&"2fff".into(), &"2fff".into()));
}

#[test]
fn help_names_every_option() {
    let image = Image::new();
    let help = |args: &[&str]| String::from_utf8(image.ok(args)).unwrap();
    let add = help(&["virt", "add", "--help"]);
    for word in ["--kernel", "--param", "--write", "--truncate", "--mode", "--parents", "@OFFSET", "text:STRING"] {
        assert!(add.contains(word), "{word}: {add}");
    }
    let all = help(&["virt", "--help"]);
    assert!(["add", "ls", "rm"].iter().all(|verb| all.contains(&format!("  {verb} "))), "{all}");
    assert!(help(&["virt", "ls", "--help"]).contains("--json"));
    assert!(add.contains("\nExamples:\n  weldfs virt add "), "{add}");
    let exec = help(&["exec", "--help"]);
    assert!(exec.contains("\n  kernel NAME[:BACKEND]("), "{exec}");
    let tune = help(&["tune", "--help"]);
    assert!(tune.contains("link.bandwidth=4GB/s") && tune.contains("slots.count=5"), "{tune}");
}
