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
    assert!(code == 1 && why.contains("No such file"), "{why}");
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
    assert!(usage(&["--kernel", "grep", "--param", "many", &f]).contains("'many' is not a number"));
    assert!(usage(&["--kernel", "rle", "--write", &f, &f]).contains("--write takes one file"));
    assert!(usage(&["--kernel", "rle", "--truncate", &f]).contains("--write"));
    image.ok(&["virt", "add", &name, "--kernel", "no-such-kernel", &f]);
    let (code, why) = image.fails(&["cat", &name]);
    assert!(code == 1 && why.contains("the device has no kernel no-such-kernel"), "{why}");
    image.ok(&["virt", "rm", &name]);
    image.ok(&["virt", "add", &name, "--kernel", "grep", "--param", "text:x", &image.at("/not/there")]);
    let (code, why) = image.fails(&["cat", &name]);
    assert!(code == 1 && why.contains("\"/not/there\", which it streams, is not there"), "{why}");
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
