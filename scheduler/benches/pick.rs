//! Time per pick and charge, 10,000 runnable queues, and the floor: what a bare red-black tree of that many members
//! takes to give its first and take it back elsewhere. Wall time is looked at, never gated: instruction counts are (see
//! `benches/drills`).

mod drill;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use drill::{Bare, Case, QUEUES, STAY, prepare, work};
use weldfs_scheduler::PolicyKind;

fn floor(c: &mut Criterion) {
    let mut tree = Bare::new();
    let mut group = c.benchmark_group("a bare tree");
    group.throughput(criterion::Throughput::Elements(1000));
    group.bench_function(format!("{QUEUES} members, first out and in again"), |b| b.iter(|| tree.work(1000)));
    group.finish();
}

fn picks(c: &mut Criterion) {
    for kind in [PolicyKind::Rr, PolicyKind::Cfs, PolicyKind::Eevdf] {
        for case in Case::ALL {
            let mut group = c.benchmark_group(format!("{QUEUES} queues, queue {}", case.name()));
            if case == Case::Stays {
                group.throughput(criterion::Throughput::Elements(u64::from(STAY)));
                let fresh = || prepare(kind, case);
                group.bench_function(kind.name(), |b| {
                    b.iter_batched_ref(fresh, |policy| work(&mut **policy, case, STAY), BatchSize::LargeInput);
                });
            } else {
                group.throughput(criterion::Throughput::Elements(1000));
                let mut policy = prepare(kind, case);
                group.bench_function(kind.name(), |b| b.iter(|| work(&mut *policy, case, 1000)));
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = floor, picks
}
criterion_main!(benches);
