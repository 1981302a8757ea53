//! The smallest workload that still fails.

use super::workload::{Background, FsOp, Mode, Opening, Step, Sync, Workload};

/// Makes `workload` smaller as long as `still_bad` says that the smaller one fails too: first fewer steps, then each
/// step simpler (no sync, nothing in the background, volatile, default mode, less data, a simpler operation). Ends when
/// no single change keeps it failing.
pub fn shrink(workload: &Workload, still_bad: &mut dyn FnMut(&Workload) -> bool) -> Workload {
    let mut best = workload.clone();
    loop {
        let smaller = candidates(&best).into_iter().find(|w| still_bad(w));
        match smaller {
            Some(w) => best = w,
            None => return best,
        }
    }
}

/// Everything that is one change smaller, the greatest changes first.
fn candidates(w: &Workload) -> Vec<Workload> {
    let n = w.steps.len();
    let mut all = Vec::new();
    let mut width = n / 2;
    while width > 0 {
        for from in (0..n).step_by(width) {
            let mut steps = w.steps.clone();
            steps.drain(from..(from + width).min(n));
            if !steps.is_empty() {
                all.push(Workload { steps });
            }
        }
        width /= 2;
    }
    for i in 0..n {
        for step in simpler(&w.steps[i]) {
            let mut steps = w.steps.clone();
            steps[i] = step;
            all.push(Workload { steps });
        }
    }
    all
}

fn simpler(step: &Step) -> Vec<Step> {
    let mut all = vec![
        step.then(Background::Nothing),
        step.sync(Sync::Nothing),
        Step { durable: false, ..*step },
        step.mode(Mode::Default),
    ];
    all.extend(simpler_ops(step.op).into_iter().map(|op| Step { op, ..*step }));
    all.retain(|s| s != step);
    all
}

/// Half of a number, on a round one if possible: 0 in the end.
fn less(n: u64) -> Vec<u64> {
    let mut all = vec![0, 1, n / 4096 * 4096, n / 2];
    all.retain(|m| *m < n);
    all.dedup();
    all
}

fn simpler_ops(op: FsOp) -> Vec<FsOp> {
    match op {
        FsOp::Write { at, off, len } => lens(len, |len| FsOp::Write { at, off, len })
            .chain(less(off).into_iter().map(|off| FsOp::Write { at, off, len }))
            .collect(),
        FsOp::Append { at, len } => lens(len, |len| FsOp::Append { at, len }).collect(),
        FsOp::Truncate { at, size } => less(size).into_iter().map(|size| FsOp::Truncate { at, size }).collect(),
        FsOp::Fallocate { at, mode, off, len } => lens(len, |len| FsOp::Fallocate { at, mode, off, len })
            .chain(less(off).into_iter().map(|off| FsOp::Fallocate { at, mode, off, len }))
            .collect(),
        FsOp::SetXattr { at, key, len } => lens(len, |len| FsOp::SetXattr { at, key, len }).collect(),
        FsOp::OpenWriteClose { at, how, off, len } => {
            let single = [FsOp::Creat { at }, FsOp::Write { at, off, len }];
            let less_data = lens(len, |len| FsOp::OpenWriteClose { at, how, off, len });
            let nearer = less(off).into_iter().map(|off| FsOp::OpenWriteClose { at, how, off, len });
            single.into_iter().chain(less_data).chain(nearer).collect()
        }
        FsOp::OpenReadWriteClose { at, how, off, len } => {
            let single = [FsOp::OpenWriteClose { at, how, off, len }];
            let less_data = lens(len, |len| FsOp::OpenReadWriteClose { at, how, off, len });
            single.into_iter().chain(less_data).collect()
        }
        FsOp::AppendChecksumWrite { at, len } => {
            let single = [FsOp::Append { at, len }];
            single.into_iter().chain(lens(len, |len| FsOp::AppendChecksumWrite { at, len })).collect()
        }
        FsOp::AtomicReplace { tmp, at, len } => {
            let single = [FsOp::OpenWriteClose { at: tmp, how: Opening::Trunc, off: 0, len }];
            single.into_iter().chain(lens(len, |len| FsOp::AtomicReplace { tmp, at, len })).collect()
        }
        FsOp::Program { a, b, len } => lens(len, |len| FsOp::Program { a, b, len }).collect(),
        FsOp::Batch { a, b, len } => lens(len, |len| FsOp::Batch { a, b, len }).collect(),
        FsOp::Fused { row, a, b, off, len } => lens(len, |len| FsOp::Fused { row, a, b, off, len })
            .chain(less(off).into_iter().map(|off| FsOp::Fused { row, a, b, off, len }))
            .collect(),
        FsOp::MultiWrite { a, b, off, len } => lens(len, |len| FsOp::MultiWrite { a, b, off, len })
            .chain(less(off).into_iter().map(|off| FsOp::MultiWrite { a, b, off, len }))
            .collect(),
        FsOp::ReadModifyWrite { at, off, len, .. } => vec![FsOp::Write { at, off, len }],
        _ => Vec::new(),
    }
}

/// The same with less data, but some.
fn lens(len: u64, op: impl Fn(u64) -> FsOp) -> impl Iterator<Item = FsOp> {
    less(len).into_iter().filter(|l| *l > 0).map(op)
}
