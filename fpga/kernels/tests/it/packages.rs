//! The manifests of the packages in `fpga/packages/`, against the table of kernels.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use weldfs_fpga::manifest::Region;
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
    chain: Option<Vec<Stage>>,
}

#[derive(Deserialize)]
struct Stage {
    kernel: String,
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
    let chains = manifests.iter().filter(|m| m.backend.model.as_ref().is_some_and(|m| m.chain.is_some())).count();
    assert_eq!(names.len(), BUILTINS.len() + chains);
    for (name, manifest) in names.iter().zip(&manifests) {
        assert_eq!(manifest.name, *name);
        let Some(builtin) = weldfs_kernels::find(name) else { continue };
        assert_eq!(manifest.cycles_per_flit, builtin.cycles_per_flit, "{name}");
        let named = manifest.backend.model.as_ref().and_then(|m| m.builtin.as_deref());
        assert_eq!(named, Some(*name), "the model of {name}");
    }
}

#[test]
fn a_chain_has_the_sizes_of_its_stages_and_the_cycles_of_the_slowest() {
    let of = |name: &str| weldfs_kernels::manifest(name).unwrap_or_else(|| panic!("no package {name}"));
    let mut chains = 0;
    for manifest in manifests() {
        let Some(stages) = manifest.backend.model.and_then(|m| m.chain) else { continue };
        let (chain, stages) = (of(&manifest.name), stages.iter().map(|s| of(&s.kernel)).collect::<Vec<_>>());
        let sum = |get: fn(&Region) -> u32| stages.iter().map(|s| get(&s.region)).sum::<u32>();
        let sizes = [sum(|r| r.lut), sum(|r| r.ff), sum(|r| r.bram), sum(|r| r.dsp)];
        let Region { lut, ff, bram, dsp } = chain.region;
        assert_eq!([lut, ff, bram, dsp], sizes, "{}", chain.name);
        assert_eq!(chain.cycles_per_flit, stages.iter().map(|s| s.cycles_per_flit).fold(0.0, f64::max));
        chains += 1;
    }
    assert!(chains >= 2);
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
