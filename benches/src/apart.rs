//! A device's threads and the client's on cores of their own.
//!
//! Both poll. Where the scheduler puts them on one core, each spins away the time in which the other could answer, and
//! an idle core beside them does not help: at any moment only one of them is runnable, so nothing looks out of balance.
//! Whoever measures, or runs an application that polls, keeps them apart. Threads of the host's systems go where they
//! like.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::Path;

/// The processors that this process may use, ascending.
fn processors() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

/// Gives the threads that run a device's cores in process `pid` the last processor. Nothing happens on a machine that
/// has only one.
pub(crate) fn device(pid: u32) {
    let cpus = processors();
    let Some((last, [_, ..])) = cpus.split_last() else { return };
    let set = set_of(&[*last]);
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks.filter(|t| runs_a_core(&t.path())) {
        let tid = task.file_name().to_str().and_then(|n| n.parse().ok()).and_then(rustix::process::Pid::from_raw);
        // A thread that is gone needs no place.
        let _ = tid.map(|tid| sched_setaffinity(Some(tid), &set));
    }
}

fn runs_a_core(task: &Path) -> bool {
    let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
    name.starts_with("weld-dev-") || name.starts_with("weld-host-")
}

/// Keeps the calling thread, one of `threads` of a client, off the device's processor, if the others are enough.
pub(crate) fn client(threads: u32) {
    let cpus = processors();
    if let Some((_, others)) = cpus.split_last()
        && others.len() >= threads as usize
    {
        let _ = sched_setaffinity(None, &set_of(others));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_thread_leaves_the_last_processor_to_the_device() {
        let all = processors();
        assert!(!all.is_empty());
        std::thread::spawn(move || {
            client(u32::MAX);
            assert_eq!(processors(), all, "more threads than processors go where they like");
            client(1);
            let rest = if all.len() > 1 { &all[..all.len() - 1] } else { &all[..] };
            assert_eq!(processors(), rest);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn threads_that_run_a_core_get_the_last_processor() {
        let all = processors();
        let (ready, told) = std::sync::mpsc::channel();
        let (go, end) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("weld-dev-0".into()).spawn(move || {
            ready.send(()).unwrap();
            end.recv().unwrap();
            processors()
        });
        told.recv().unwrap();
        device(std::process::id());
        go.send(()).unwrap();
        let got = thread.unwrap().join().unwrap();
        assert_eq!(got, all[all.len() - 1..], "the one with that name");
        assert_eq!(processors(), all, "and no other");
    }
}
