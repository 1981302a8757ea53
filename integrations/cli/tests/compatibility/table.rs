//! The table of docs/COMPATIBILITY.md: what it says of each script.

use crate::SCRIPTS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a cell says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Yes,
    No,
}

/// A row: one or more scripts.
#[derive(Clone, Debug)]
pub struct Row {
    pub scripts: Vec<String>,
    /// Under `weldfs run`, which mounts the files by itself.
    pub run: Held,
    /// Under `weldfs run --mount never`.
    pub alone: Held,
    pub mount: Held,
}

/// `yes` and `no`, with nothing or an explanation after them.
fn held(cell: &str) -> Held {
    match cell.split([' ', ',', ':']).next() {
        Some("yes") => Held::Yes,
        Some("no") => Held::No,
        _ => panic!("a cell begins with yes or no: {cell}"),
    }
}

/// Rows of the table whose last column is the script.
fn rows() -> Vec<Row> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/COMPATIBILITY.md");
    let text = std::fs::read_to_string(file).expect("docs/COMPATIBILITY.md");
    let table = text.lines().skip_while(|line| !line.ends_with("| script |")).skip(2);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [program, version, run, alone, mount, _remarks, scripts] = cells[..] else {
            panic!("not seven cells: {line}")
        };
        assert!(!program.is_empty() && version.contains(' '), "a program, its package and version: {line}");
        let scripts = scripts.split(['`', ' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Row { scripts, run: held(run), alone: held(alone), mount: held(mount) }
    };
    table.take_while(|line| line.starts_with('|')).map(row).collect()
}

/// The row of a script.
pub fn row_of(script: &str) -> Row {
    let found = rows().into_iter().find(|row| row.scripts.iter().any(|name| name == script));
    found.unwrap_or_else(|| panic!("docs/COMPATIBILITY.md has no row with the script {script}"))
}

#[test]
fn every_row_has_scripts_and_every_script_a_row_and_a_test() {
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows() {
        assert!(!row.scripts.is_empty(), "{row:?}");
        for script in row.scripts {
            *named.entry(script).or_default() += 1;
        }
    }
    assert!(named.values().all(|times| *times == 1), "a script stands in one row: {named:?}");
    let named: BTreeSet<String> = named.into_keys().collect();
    let folder = crate::doors::script("x").parent().expect("a folder").read_dir().expect("the scripts");
    let there: BTreeSet<String> = folder
        .map(|entry| entry.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    let run: BTreeSet<String> = SCRIPTS.iter().map(ToString::to_string).collect();
    assert_eq!(there, run, "files of tests/scripts, and those that a test runs");
    assert_eq!(named, run, "rows of docs/COMPATIBILITY.md, and scripts that a test runs");
}
