//! The tree as it stands keeps every rule.

use std::sync::LazyLock;
use weldfs_tidy::tree::{self, Text};
use weldfs_tidy::{
    crates, hooks, layers, lengths, markdown, reach, references, rules, rules::Rules, surface, unsafety, words,
};

static SOURCES: LazyLock<Vec<Text>> = LazyLock::new(|| tree::texts(&[".rs"]));
static DOCUMENTS: LazyLock<Vec<Text>> = LazyLock::new(|| tree::texts(&[".md"]));
static RULES: LazyLock<Rules> = LazyLock::new(rules::read);

/// Fails with all complaints at once, so that one run shows the whole list.
fn check(what: &str, complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{what}: {} complaints:\n  {}", complaints.len(), complaints.join("\n  "));
}

fn metadata() -> cargo_metadata::Metadata {
    cargo_metadata::MetadataCommand::new().no_deps().exec().expect("cargo metadata runs")
}

#[test]
fn files_and_lines_are_short() {
    check("too long", lengths::files_and_lines(&RULES, &SOURCES));
}

#[test]
fn functions_are_short() {
    check("too long", lengths::functions(&RULES, &SOURCES));
}

#[test]
fn lines_of_markdown_are_short() {
    check("too long", markdown::complaints(&RULES, &DOCUMENTS));
}

#[test]
fn unsafe_stands_only_in_named_files() {
    check("unsafe", unsafety::complaints(&RULES, &SOURCES));
}

#[test]
fn crates_know_only_what_they_may() {
    let metadata = cargo_metadata::MetadataCommand::new().exec().expect("cargo metadata runs");
    check("dependency direction", crates::arrows(&metadata));
    check("light crates", crates::light(&metadata));
}

#[test]
fn modules_know_only_what_they_may() {
    check("arrows between modules", layers::complaints(&RULES, &metadata()));
}

#[test]
fn no_source_file_is_dead() {
    // The fuzzer is built with flags of its own, so it is a workspace of its own.
    let fuzzer = tree::root().join("fuzz/Cargo.toml");
    let fuzzer = cargo_metadata::MetadataCommand::new().manifest_path(fuzzer).no_deps().exec();
    let workspaces = [metadata(), fuzzer.expect("cargo metadata runs")];
    check("no module names", reach::complaints(&workspaces, &tree::files(&tree::root(), &[".rs"])));
}

#[test]
fn no_public_item_is_dead() {
    check("public", surface::complaints(&RULES, &metadata(), &SOURCES, &DOCUMENTS));
}

#[test]
fn hooks_for_tests_are_named_in_tests() {
    check("hooks", hooks::complaints(&RULES, &metadata()));
}

#[test]
fn every_library_opens_with_a_map() {
    check("lib.rs without a map of at least five lines", lengths::maps(&SOURCES));
}

#[test]
fn no_unfinished_marks() {
    check("unfinished", lengths::unfinished(&SOURCES));
}

#[test]
fn no_conflict_is_left() {
    let other = tree::texts(&[".md", ".toml", ".sh", ".py", ".h", ".c", ".cc", ".json", "test"]);
    check("conflicts", [lengths::conflicts(&SOURCES), lengths::conflicts(&other)].concat());
}

#[test]
fn the_words_are_the_fields() {
    check("words", words::complaints(&RULES, &DOCUMENTS, &SOURCES));
}

#[test]
fn what_documents_name_is_there() {
    check("references", references::complaints(&tree::root(), &DOCUMENTS));
}
