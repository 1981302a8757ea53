//! The header in the tree is what cbindgen makes of the crate. WELDFS_BLESS=1 writes it.

use std::path::Path;

fn generated() -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    config.header = Some(std::fs::read_to_string(here.join("preamble.h")).expect("preamble.h"));
    let mut builder = cbindgen::Builder::new().with_config(config);
    // In the order in which a reader meets them.
    for file in [
        "types",
        "client",
        "file",
        "names",
        "dir",
        "fused",
        "sums",
        "fields",
        "moves",
        "transforms",
        "batch",
        "program",
        "steps",
        "namesteps",
        "virt",
        "kernels",
        "queue",
        "submit",
        "gather",
        "catalogue",
    ] {
        builder = builder.with_src(here.join("src").join(file).with_extension("rs"));
    }
    let mut text = Vec::new();
    builder.generate().expect("bindings").write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn the_header_in_the_tree_is_the_one_that_cbindgen_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/weldfs.h");
    let fresh = generated();
    if std::env::var_os("WELDFS_BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("writable");
    }
    let kept = std::fs::read_to_string(&path).expect("userlib/include/weldfs.h");
    let differs = kept.lines().zip(fresh.lines()).position(|(a, b)| a != b);
    assert!(kept == fresh, "line {differs:?} differs: WELDFS_BLESS=1 cargo test -p weldfs-capi --test it header::");
}

/// Every exported function is in it, and says what it does.
#[test]
fn every_function_is_documented() {
    let header = generated();
    let lines: Vec<_> = header.lines().collect();
    let mut functions = 0;
    for (i, line) in lines.iter().enumerate().filter(|(_, l)| !l.starts_with([' ', '/', '#']) && l.contains('(')) {
        if line.starts_with("typedef") {
            continue;
        }
        functions += 1;
        assert_eq!(lines[i - 1].trim(), "*/", "no description: {line}");
    }
    assert!(functions >= 160, "{functions}");
}
