//! One vocabulary: a field of JSON has one name, one meaning and one type, in whichever verb it appears, and
//! docs/CLI.md has it.

use crate::images::{Bench, Served, json, ok, tree, weldfs};
use serde_json::Value;
use std::collections::BTreeMap;

/// Names and types of the table in docs/CLI.md.
fn vocabulary() -> BTreeMap<String, String> {
    let page = include_str!("../../../../docs/CLI.md");
    let (_, section) = page.split_once("\n## JSON\n").expect("the section");
    let mut names = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let (fields, kind) = (cells.next().expect("fields"), cells.next().expect("a type"));
        for field in fields.split(',') {
            let field = field.trim().trim_matches('`').to_owned();
            assert!(names.insert(field.clone(), kind.to_owned()).is_none(), "{field} is listed twice");
        }
    }
    assert!(names.len() > 50, "{names:?}");
    names
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "text" => value.is_string(),
        "text or null" => value.is_string() || value.is_null(),
        "number" => value.is_number(),
        "number or null" => value.is_number() || value.is_null(),
        "bool" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("docs/CLI.md: {kind} is no type"),
    }
}

/// Objects whose names are the caller's, or another page's: what is in them is not looked at.
const OPEN: [&str; 3] = ["registers", "outputs", "recovery"];

/// Every field of a value that is not in the table, or not of its type.
fn strange(verb: &str, value: &Value, names: &BTreeMap<String, String>, whole: bool, found: &mut Vec<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|v| strange(verb, v, names, whole, found)),
        Value::Object(fields) => {
            for (name, v) in fields {
                match names.get(name) {
                    Some(kind) if !is_of(kind, v) => found.push(format!("{verb}: {name} is no {kind}: {v}")),
                    None if whole => found.push(format!("{verb}: {name} is not in docs/CLI.md")),
                    _ => {}
                }
                if !OPEN.contains(&name.as_str()) {
                    strange(verb, v, names, whole, found);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn fields_have_the_same_name_in_every_verb() {
    let names = vocabulary();
    let bench = Bench::new();
    let image = bench.path("a.img").display().to_string();
    let at = |path: &str| format!("{image}:{path}");
    tree(&bench.path("tree"));
    let source = bench.path("tree").display().to_string();
    let out = bench.path("out").display().to_string();
    let kernels = bench.path("kernels").display().to_string();
    // On the image itself. What is true of the second is true of each: no other field is there.
    let whole: [&[&str]; 16] = [
        &["kernel", "cards"],
        &["kernel", "new", "k", "--hls", "--dir", &kernels],
        &["mkfs", &image, "--size=48M", "--medium=pmem"],
        &["put", &source, &at("/tree")],
        &["get", &at("/tree"), &out],
        &["cp", &at("/tree"), &at("/copy")],
        &["ls", "-R", &at("/")],
        &["stat", &at("/tree"), &at("/tree/link")],
        &["find", &at("/")],
        &["du", "-a", &at("/")],
        &["df", &image],
        &["exec", &image, "open /tree/sub/small r; size -> n"],
        &["exec", &image, "open /none r"],
        &["tune", ""],
        &["info", ""],
        &["df", ""],
    ];
    let mut found = Vec::new();
    let socket = format!("{image}.sock");
    let look = |args: &[&str], whole: bool, found: &mut Vec<String>| {
        let args: Vec<&str> = args.iter().map(|arg| if arg.is_empty() { &*socket } else { *arg }).collect();
        let out = weldfs(args.iter().copied().chain(["--json"]));
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(!text.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        strange(args[0], &json(&text), &names, whole, found);
    };
    let (alone, attached) = whole.split_at(13);
    alone.iter().for_each(|args| look(args, true, &mut found));
    // These have names of other pages, too; where they use one of the table, they mean the same.
    let partly: [&[&str]; 3] = [&["info", &image], &["fsck", "--data", &image], &["scrub", &image]];
    partly.iter().for_each(|args| look(args, false, &mut found));
    let served = Served::start(bench.path("a.img").as_path());
    attached.iter().for_each(|args| look(args, true, &mut found));
    let watching: [&[&str]; 3] = [&["stats", ""], &["top", "--once", "--interval=0.1", ""], &["tenants", ""]];
    watching.iter().for_each(|args| look(args, false, &mut found));
    served.term();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_the_table_names_is_still_there() {
    let bench = Bench::new();
    let image = bench.image("a.img", "pmem");
    tree(&bench.path("tree"));
    let source = bench.path("tree");
    let put = json(&ok(["put", "--json", source.to_str().expect("text"), &bench.inside("a.img", "/")]));
    for name in ["files", "directories", "symlinks", "copied_bytes", "skipped", "failed", "seconds"] {
        assert!(put.get(name).is_some(), "{name} in {put}");
    }
    let link = json(&ok(["ls", "-R", "--json", &bench.inside("a.img", "/tree")]));
    let link = link.as_array().into_iter().flatten().find(|e| e["kind"] == "symlink").expect("a link").clone();
    for name in ["path", "inode", "mode", "nlink", "uid", "gid", "size_bytes", "allocated_bytes", "mtime", "target"] {
        assert!(link.get(name).is_some(), "{name} in {link}");
    }
    let time = link["mtime"].as_str().expect("text");
    assert!(time.split_once('.').is_some_and(|(s, ns)| s.parse::<i64>().is_ok() && ns.len() == 9), "{time}");
    let scrub = json(&ok(["scrub", "--json", image.to_str().expect("text")]));
    assert!(scrub["read_bytes"].as_u64() > Some(0), "{scrub}");
}
