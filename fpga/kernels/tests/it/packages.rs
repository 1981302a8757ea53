//! The manifests of the packages in `fpga/packages/`, against the table of kernels.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use weldfs_kernels::{BUILTINS, packages};

#[derive(Deserialize)]
struct Manifest {
    name: String,
    id: String,
    cycles_per_flit: f64,
    params: Params,
    ports: Ports,
    backend: Backends,
}

#[derive(Deserialize)]
struct Params {
    min: usize,
    max: usize,
}

#[derive(Deserialize)]
struct Ports {
    peek: Vec<String>,
}

#[derive(Deserialize)]
struct Backends {
    model: Option<Model>,
}

#[derive(Deserialize)]
struct Model {
    builtin: Option<String>,
}

fn manifests() -> Vec<Manifest> {
    let read =
        |(name, text): &(&str, &str)| -> Manifest { toml::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}")) };
    packages().iter().map(read).collect()
}

#[test]
fn each_has_its_name_and_the_cycles_of_the_table() {
    let manifests = manifests();
    let names: Vec<&str> = packages().iter().map(|(name, _)| *name).collect();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    assert_eq!(names, BUILTINS.iter().map(|b| b.name).collect::<Vec<_>>());
    for ((name, manifest), builtin) in names.iter().zip(&manifests).zip(BUILTINS) {
        assert_eq!(manifest.name, *name);
        assert_eq!(manifest.cycles_per_flit, builtin.cycles_per_flit, "{name}");
        let named = manifest.backend.model.as_ref().and_then(|m| m.builtin.as_deref());
        assert_eq!(named, Some(*name), "the model of {name}");
    }
}

#[test]
fn each_folder_is_in_the_library_and_each_id_is_its_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packages");
    let folders: BTreeSet<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(folders, packages().iter().map(|(name, _)| name.to_string()).collect());
    let ids: BTreeSet<String> = manifests().into_iter().map(|m| m.id).collect();
    assert_eq!(ids.len(), packages().len());
    assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b"0123456789abcdef".contains(&b))), "{ids:?}");
}

#[test]
fn counts_of_parameters_and_peek_ports_are_the_kernels() {
    for manifest in manifests() {
        let mut kernel = crate::builtin(&manifest.name);
        for count in [manifest.params.min.checked_sub(1), Some(manifest.params.max + 1)].into_iter().flatten() {
            assert!(kernel.reset(&vec![1; count]).is_err(), "{} takes {count} parameters", manifest.name);
        }
        let ports = (0..64).take_while(|port| kernel.peek(*port).is_some()).count();
        assert_eq!(ports, manifest.ports.peek.len(), "ports of {}", manifest.name);
    }
}
