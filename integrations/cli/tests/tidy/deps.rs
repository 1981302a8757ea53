//! Which crate may know which: docs/ARCHITECTURE.md's arrows, held against `cargo metadata`.

use crate::check;
use std::collections::BTreeSet;

/// Crate, and the workspace crates that it may name (directly, dev-dependencies aside).
const ARROWS: &[(&str, &[&str])] = &[
    ("weldfs-functions", &[]),
    ("weldfs-ciscops", &["weldfs-functions"]),
    ("weldfs-journal", &["weldfs-ciscops", "weldfs-functions"]),
    ("weldfs-scheduler", &["weldfs-ciscops"]),
    ("weldfs-fpga", &["weldfs-ciscops"]),
    ("weldfs-userlib", &["weldfs-ciscops"]),
    ("weldfs-capi", &["weldfs-ciscops", "weldfs-userlib"]),
    ("weldfs-storagefs", &["weldfs-ciscops", "weldfs-functions", "weldfs-journal", "weldfs-scheduler", "weldfs-fpga"]),
    ("weldfs-kernel-shim", &["weldfs-ciscops", "weldfs-journal", "weldfs-storagefs", "weldfs-userlib"]),
    ("weldfs-preload", &["weldfs-ciscops", "weldfs-userlib"]),
    ("weldfs-rocksdb", &["weldfs-userlib"]),
    // Reads images from the written format alone.
    ("weldfs-logview", &[]),
    ("weldfs-leveldb", &["weldfs-userlib"]),
    ("weldfs-sqlite", &["weldfs-userlib"]),
    (
        "weldfs-crash-harness",
        &["weldfs-ciscops", "weldfs-journal", "weldfs-storagefs", "weldfs-kernel-shim", "weldfs-userlib"],
    ),
    (
        "weldfs-benches",
        &[
            "weldfs-ciscops",
            "weldfs-journal",
            "weldfs-scheduler",
            "weldfs-storagefs",
            "weldfs-kernel-shim",
            "weldfs-userlib",
        ],
    ),
    (
        "weldfs-cli",
        &[
            "weldfs-ciscops",
            "weldfs-journal",
            "weldfs-storagefs",
            "weldfs-kernel-shim",
            "weldfs-userlib",
            "weldfs-benches",
            "weldfs-crash-harness",
            "weldfs-logview",
            "weldfs-preload",
        ],
    ),
];

/// Heavy things that the contract, the client and the preload library must never pull in.
const NOT_IN_LIGHT: &[&str] = &["tokio", "async-std", "wasmtime", "arrow", "clap", "io-uring", "tracing-subscriber"];
const LIGHT: &[&str] = &["weldfs-functions", "weldfs-ciscops", "weldfs-userlib", "weldfs-capi", "weldfs-preload"];

fn metadata() -> cargo_metadata::Metadata {
    cargo_metadata::MetadataCommand::new().exec().expect("cargo metadata runs")
}

#[test]
fn arrows_point_one_way() {
    let (meta, mut bad) = (metadata(), Vec::new());
    let members: BTreeSet<_> = meta.workspace_packages().iter().map(|p| p.name.to_string()).collect();
    for package in meta.workspace_packages() {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name.as_str()) else {
            bad.push(format!("{}: a crate without a line in ARROWS", package.name));
            continue;
        };
        let normal = package.dependencies.iter().filter(|d| d.kind == cargo_metadata::DependencyKind::Normal);
        for dependency in normal.filter(|d| members.contains(&d.name) && !allowed.contains(&d.name.as_str())) {
            bad.push(format!("{} must not know {}", package.name, dependency.name));
        }
    }
    check("dependency direction", bad);
}

#[test]
fn light_crates_stay_light() {
    let (meta, mut bad) = (metadata(), Vec::new());
    let resolve = meta.resolve.as_ref().expect("cargo metadata resolves");
    for light in LIGHT {
        let start = meta.packages.iter().find(|p| p.name.as_str() == *light).expect("workspace member");
        let (mut queue, mut seen) = (vec![start.id.clone()], BTreeSet::new());
        while let Some(id) = queue.pop() {
            if !seen.insert(id.clone()) {
                continue;
            }
            let node = resolve.nodes.iter().find(|n| n.id == id).expect("resolved");
            let normal = |d: &&cargo_metadata::NodeDep| {
                d.dep_kinds.iter().any(|k| {
                    k.kind == cargo_metadata::DependencyKind::Normal
                        && !k.target.as_ref().is_some_and(|t| t.to_string().contains("loom"))
                })
            };
            queue.extend(node.deps.iter().filter(normal).map(|d| d.pkg.clone()));
        }
        let names = meta.packages.iter().filter(|p| seen.contains(&p.id)).map(|p| p.name.to_string());
        bad.extend(names.filter(|n| NOT_IN_LIGHT.contains(&n.as_str())).map(|n| format!("{light} pulls in {n}")));
    }
    check("light crates", bad);
}
