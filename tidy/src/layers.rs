//! Arrows between the modules of a crate point one way: `tidy.toml` has the order, and exceptions with reasons.

use crate::modules::{Crate, ModPath};
use crate::rules::{Layers, Rules};
use cargo_metadata::Metadata;
use std::collections::{BTreeMap, BTreeSet};

/// What a module uses, and a place where it does.
pub type Arrows = BTreeMap<(String, String), String>;

/// The arrows between the modules directly inside of `outer`. What `outer` defines itself is called `self`.
#[must_use]
pub fn arrows(krate: &Crate, outer: &[String]) -> Arrows {
    let mut arrows = Arrows::new();
    for (at, module) in &krate.modules {
        // The outer module's own code stands above all others.
        let Some(from) = inside(outer, at) else { continue };
        for named in &module.named {
            let to = krate.resolve(&named.path);
            let Some(to) = inside(outer, &to) else { continue };
            let known = krate.modules.get(outer).is_some_and(|m| m.children.contains(&to));
            let to = if known { to } else { "self".to_owned() };
            if to != from {
                let place = || format!("{}:{}", crate::tree::shown(&module.file), named.line);
                arrows.entry((from.clone(), to)).or_insert_with(place);
            }
        }
    }
    arrows
}

/// The module directly inside of `outer` on the way to `path`.
fn inside(outer: &[String], path: &[String]) -> Option<String> {
    path.strip_prefix(outer)?.first().cloned()
}

/// Complaints about one crate's arrows against one order.
#[must_use]
pub fn against(krate: &Crate, layers: &Layers) -> Vec<String> {
    let outer: ModPath = layers.of.split("::").skip(1).map(ToOwned::to_owned).collect();
    let Some(module) = krate.modules.get(&outer) else { return vec![format!("{}: no such module", layers.of)] };
    let level = |name: &str| layers.order.iter().position(|line| line.iter().any(|n| n == name));
    let mut bad = Vec::new();
    let known: BTreeSet<&str> = module.children.iter().map(String::as_str).chain(["self"]).collect();
    for name in layers.order.iter().flatten().filter(|n| !known.contains(n.as_str())) {
        bad.push(format!("{}: {name} is in the order, and there is no such module", layers.of));
    }
    for name in module.children.iter().filter(|n| level(n).is_none()) {
        bad.push(format!("{}: {name} has no place in the order", layers.of));
    }
    let (arrows, mut kept) = (arrows(krate, &outer), BTreeMap::<&str, BTreeSet<&str>>::new());
    for ((from, to), place) in &arrows {
        if layers.except.iter().any(|e| e.from == *from && e.to == *to) {
            continue;
        }
        if level(from) < level(to) {
            bad.push(format!("{}: {from} must not know {to} ({place})", layers.of));
        }
        kept.entry(from).or_default().insert(to);
    }
    for name in kept.keys().filter(|name| reaches(&kept, name, name)) {
        let round = kept[name].iter().filter(|to| reaches(&kept, to, name)).copied().collect::<Vec<_>>().join(", ");
        bad.push(format!("{}: {name} is in a circle through {round}", layers.of));
    }
    for e in &layers.except {
        let arrow = (e.from.clone(), e.to.clone());
        let needed = arrows.contains_key(&arrow)
            && (level(&e.from) < level(&e.to) || e.from == e.to || reaches(&kept, &e.to, &e.from));
        if !needed {
            bad.push(format!("{}: the exception {} to {} is no longer needed", layers.of, e.from, e.to));
        }
    }
    bad
}

/// Whether arrows lead from one to the other.
fn reaches(arrows: &BTreeMap<&str, BTreeSet<&str>>, from: &str, to: &str) -> bool {
    let (mut queue, mut seen) = (vec![from], BTreeSet::new());
    while let Some(at) = queue.pop() {
        for next in arrows.get(at).into_iter().flatten() {
            if *next == to {
                return true;
            }
            if seen.insert(*next) {
                queue.push(next);
            }
        }
    }
    false
}

/// The file that a package's modules begin in.
///
/// # Panics
/// When there is no such package, or it has neither library nor program.
#[must_use]
pub(crate) fn root_of(metadata: &Metadata, package: &str) -> std::path::PathBuf {
    let package = metadata.packages.iter().find(|p| p.name.as_str() == package);
    let package = package.unwrap_or_else(|| panic!("tidy.toml names a package that is not there"));
    let mut targets = package.targets.iter().filter(|t| !t.is_test() && !t.is_bench() && !t.is_example());
    let target = targets.clone().find(|t| t.is_bin()).filter(|_| !package.targets.iter().any(is_lib));
    let target = target.or_else(|| targets.find(|t| is_lib(t))).expect("a library or a program");
    target.src_path.clone().into()
}

/// Whether a target is the package's library.
#[must_use]
pub(crate) fn is_lib(target: &cargo_metadata::Target) -> bool {
    target.is_lib() || target.is_rlib() || target.is_cdylib() || target.is_staticlib()
}

/// Arrows that point up, circles, and exceptions that nothing needs any more.
///
/// # Panics
/// When a crate cannot be read.
#[must_use]
pub fn complaints(rules: &Rules, metadata: &Metadata) -> Vec<String> {
    let (mut bad, mut crates) = (Vec::new(), BTreeMap::new());
    for layers in &rules.layers {
        let package = layers.of.split("::").next().unwrap_or_default();
        let krate = crates.entry(package).or_insert_with(|| Crate::read(&root_of(metadata, package)));
        bad.extend(against(krate, layers));
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::{Module, Named};
    use crate::rules::Except;

    /// A crate of modules without code, with these arrows.
    fn krate(arrows: &[(&str, &str)]) -> Crate {
        let mut krate = Crate::default();
        let names: BTreeSet<String> = arrows.iter().flat_map(|(a, b)| [a, b]).map(|n| (*n).to_owned()).collect();
        krate.modules.insert(Vec::new(), Module { children: names.clone(), ..Module::default() });
        for name in names {
            let to = arrows.iter().filter(|(from, _)| *from == name);
            let named = to.map(|(_, to)| Named { path: vec![(*to).to_owned()], line: 1 }).collect();
            krate.modules.insert(vec![name], Module { named, ..Module::default() });
        }
        krate
    }

    fn complain(arrows: &[(&str, &str)], order: &[&[&str]], except: &[(&str, &str)]) -> Vec<String> {
        let order = order.iter().map(|line| line.iter().map(|n| (*n).to_owned()).collect()).collect();
        let except = except.iter().map(|(from, to)| Except { from: (*from).into(), to: (*to).into(), why: "x".into() });
        against(&krate(arrows), &Layers { of: "c".into(), order, except: except.collect() })
    }

    #[test]
    fn arrows_down_are_fine_and_arrows_up_are_not() {
        assert!(complain(&[("high", "low")], &[&["low"], &["high"]], &[]).is_empty());
        assert_eq!(complain(&[("low", "high")], &[&["low"], &["high"]], &[]).len(), 1);
        assert!(complain(&[("low", "high")], &[&["low"], &["high"]], &[("low", "high")]).is_empty());
    }

    #[test]
    fn circles_within_a_line_are_found_and_an_exception_breaks_them() {
        let round = [("a", "b"), ("b", "c"), ("c", "a")];
        assert!(complain(&round[..2], &[&["a", "b", "c"]], &[]).is_empty());
        assert_eq!(complain(&round, &[&["a", "b", "c"]], &[]).len(), 3);
        assert!(complain(&round, &[&["a", "b", "c"]], &[("c", "a")]).is_empty());
    }

    #[test]
    fn what_is_not_needed_or_not_there_is_a_complaint() {
        let down = [("high", "low")];
        assert_eq!(complain(&down, &[&["low"], &["high"]], &[("low", "high")]).len(), 1);
        assert_eq!(complain(&down, &[&["low"], &["high"]], &[("high", "low")]).len(), 1);
        assert_eq!(complain(&down, &[&["low"], &["high", "gone"]], &[]).len(), 1);
        assert_eq!(complain(&down, &[&["high"]], &[]), ["c: low has no place in the order"]);
    }
}
