//! Which crate may know which: docs/ARCHITECTURE.md's arrows, held against `cargo metadata`.

use cargo_metadata::{DependencyKind, Metadata};
use std::collections::BTreeSet;

/// Crate, and the workspace crates that it may name (directly, dev-dependencies aside).
const ARROWS: &[(&str, &[&str])] = &[
    ("weldfs-tidy", &[]),
    ("weldfs-functions", &[]),
    ("weldfs-locks", &[]),
    ("weldfs-waiting", &[]),
    ("weldfs-ciscops", &["weldfs-functions"]),
    ("weldfs-journal", &["weldfs-ciscops", "weldfs-functions", "weldfs-locks"]),
    ("weldfs-scheduler", &["weldfs-ciscops"]),
    ("weldfs-fpga", &["weldfs-ciscops", "weldfs-locks"]),
    ("weldfs-kernels", &["weldfs-fpga", "weldfs-functions"]),
    ("weldfs-userlib", &["weldfs-ciscops", "weldfs-waiting", "weldfs-locks"]),
    // The device only with its feature `embedded`.
    ("weldfs-capi", &["weldfs-ciscops", "weldfs-userlib", "weldfs-kernel-shim", "weldfs-locks"]),
    // What bytes persist on.
    ("weldfs-media", &["weldfs-ciscops", "weldfs-functions", "weldfs-journal", "weldfs-locks", "weldfs-waiting"]),
    // What is committed. It knows no medium but through the journal's trait, and no meaning of names and files.
    ("weldfs-store", &["weldfs-ciscops", "weldfs-functions", "weldfs-journal", "weldfs-locks"]),
    // POSIX, and recovery of what a crash interrupted. Of the media it takes how checksums are joined.
    (
        "weldfs-fs",
        &[
            "weldfs-ciscops",
            "weldfs-functions",
            "weldfs-journal",
            "weldfs-fpga",
            "weldfs-kernels",
            "weldfs-locks",
            "weldfs-media",
            "weldfs-store",
        ],
    ),
    // What every device needs to have clients. Of the store it knows an identity, the end of a log and a rate of lines.
    (
        "weldfs-session",
        &[
            "weldfs-ciscops",
            "weldfs-journal",
            "weldfs-scheduler",
            "weldfs-fpga",
            "weldfs-locks",
            "weldfs-store",
            "weldfs-waiting",
        ],
    ),
    // A directory of the host in place of a medium: no device, no medium.
    (
        "weldfs-hostdir",
        &[
            "weldfs-ciscops",
            "weldfs-functions",
            "weldfs-journal",
            "weldfs-scheduler",
            "weldfs-locks",
            "weldfs-store",
            "weldfs-fs",
            "weldfs-session",
            "weldfs-waiting",
        ],
    ),
    // Cores, and the way of a command through them.
    (
        "weldfs-device",
        &[
            "weldfs-ciscops",
            "weldfs-functions",
            "weldfs-waiting",
            "weldfs-journal",
            "weldfs-scheduler",
            "weldfs-fpga",
            "weldfs-kernels",
            "weldfs-locks",
            "weldfs-store",
            "weldfs-fs",
            "weldfs-session",
        ],
    ),
    (
        "weldfs-kernel-shim",
        &[
            "weldfs-ciscops",
            "weldfs-journal",
            "weldfs-media",
            "weldfs-store",
            "weldfs-fs",
            "weldfs-hostdir",
            "weldfs-device",
            "weldfs-userlib",
            "weldfs-waiting",
            "weldfs-locks",
        ],
    ),
    ("weldfs-preload", &["weldfs-ciscops", "weldfs-userlib", "weldfs-locks"]),
    ("weldfs-rocksdb", &["weldfs-userlib"]),
    // A client like any other: how a device is found or started is for whoever mounts.
    ("weldfs-mount", &["weldfs-ciscops", "weldfs-userlib", "weldfs-locks"]),
    // Reads images from the written format alone.
    ("weldfs-logview", &[]),
    // Feeds bytes to everything that reads some.
    (
        "weldfs-fuzz-targets",
        &[
            "weldfs-capi",
            "weldfs-ciscops",
            "weldfs-crash-harness",
            "weldfs-functions",
            "weldfs-journal",
            "weldfs-kernel-shim",
            "weldfs-logview",
            "weldfs-media",
            "weldfs-store",
            "weldfs-fs",
            "weldfs-device",
        ],
    ),
    // Hostile clients and damaged images: what it drives, and what the fuzzer knows of images.
    (
        "weldfs-hostile",
        &[
            "weldfs-ciscops",
            "weldfs-crash-harness",
            "weldfs-fuzz-targets",
            "weldfs-journal",
            "weldfs-media",
            "weldfs-store",
            "weldfs-fs",
            "weldfs-userlib",
            "weldfs-waiting",
        ],
    ),
    ("weldfs-sqlite", &["weldfs-ciscops", "weldfs-kernel-shim", "weldfs-userlib", "weldfs-locks"]),
    ("weldfs-examples", &["weldfs-ciscops", "weldfs-userlib"]),
    (
        "weldfs-crash-harness",
        &[
            "weldfs-ciscops",
            "weldfs-journal",
            "weldfs-fpga",
            "weldfs-kernels",
            "weldfs-media",
            "weldfs-store",
            "weldfs-fs",
            "weldfs-device",
            "weldfs-kernel-shim",
            "weldfs-locks",
            "weldfs-userlib",
        ],
    ),
    (
        "weldfs-benches",
        &[
            "weldfs-ciscops",
            "weldfs-journal",
            "weldfs-scheduler",
            "weldfs-media",
            "weldfs-store",
            "weldfs-fs",
            "weldfs-session",
            "weldfs-hostdir",
            "weldfs-device",
            "weldfs-kernel-shim",
            "weldfs-userlib",
            "weldfs-fpga",
            "weldfs-kernels",
            "weldfs-functions",
        ],
    ),
    (
        "weldfs-drills",
        &[
            "weldfs-ciscops",
            "weldfs-journal",
            "weldfs-scheduler",
            "weldfs-media",
            "weldfs-store",
            "weldfs-fs",
            "weldfs-device",
            "weldfs-kernel-shim",
            "weldfs-userlib",
            "weldfs-fpga",
        ],
    ),
    (
        "weldfs-cli",
        &[
            "weldfs-ciscops",
            "weldfs-journal",
            "weldfs-media",
            "weldfs-store",
            "weldfs-fs",
            "weldfs-session",
            "weldfs-hostdir",
            "weldfs-device",
            "weldfs-fpga",
            "weldfs-kernels",
            "weldfs-kernel-shim",
            "weldfs-userlib",
            "weldfs-benches",
            "weldfs-crash-harness",
            "weldfs-logview",
            "weldfs-mount",
            "weldfs-preload",
        ],
    ),
];

/// Heavy things that the contract, the client and the preload library must never pull in.
const NOT_IN_LIGHT: &[&str] = &["tokio", "async-std", "wasmtime", "arrow", "clap", "io-uring", "tracing-subscriber"];
const LIGHT: &[&str] = &["weldfs-functions", "weldfs-ciscops", "weldfs-userlib", "weldfs-preload"];

/// Crates that name one they must not know. Dev-dependencies may: tests of a lower crate drive it through a client.
#[must_use]
pub fn arrows(meta: &Metadata) -> Vec<String> {
    let mut bad = Vec::new();
    let members: BTreeSet<_> = meta.workspace_packages().iter().map(|p| p.name.to_string()).collect();
    for package in meta.workspace_packages() {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name.as_str()) else {
            bad.push(format!("{}: a crate without a line in ARROWS", package.name));
            continue;
        };
        let normal = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        for dependency in normal.filter(|d| members.contains(&d.name) && !allowed.contains(&d.name.as_str())) {
            bad.push(format!("{} must not know {}", package.name, dependency.name));
        }
    }
    bad
}

/// Light crates that pull in something heavy.
///
/// # Panics
/// When the metadata is not of this workspace, or without its dependencies.
#[must_use]
pub fn light(meta: &Metadata) -> Vec<String> {
    let mut bad = Vec::new();
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
                    k.kind == DependencyKind::Normal
                        && !k.target.as_ref().is_some_and(|t| t.to_string().contains("loom"))
                })
            };
            queue.extend(node.deps.iter().filter(normal).map(|d| d.pkg.clone()));
        }
        let names = meta.packages.iter().filter(|p| seen.contains(&p.id)).map(|p| p.name.to_string());
        bad.extend(names.filter(|n| NOT_IN_LIGHT.contains(&n.as_str())).map(|n| format!("{light} pulls in {n}")));
    }
    bad
}
