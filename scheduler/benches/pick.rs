//! Time per pick and charge, 10,000 runnable queues, and the floor: what a bare red-black tree of that many members
//! takes to give its first and take it back elsewhere. Wall time is looked at, never gated: instruction counts are (see
//! `examples/instructions.rs`).

mod drill;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use drill::{Case, QUEUES, STAY, prepare, work};
use intrusive_collections::{KeyAdapter, RBTree, RBTreeLink, intrusive_adapter};
use weldfs_scheduler::PolicyKind;

#[repr(align(64))]
struct Node {
    link: RBTreeLink,
    key: i128,
}

intrusive_adapter!(ByKey = Box<Node>: Node { link => RBTreeLink });

impl<'a> KeyAdapter<'a> for ByKey {
    type Key = i128;

    fn get_key(&self, node: &'a Node) -> i128 {
        node.key
    }
}

fn floor(c: &mut Criterion) {
    let mut tree = RBTree::<ByKey>::default();
    let mut dice = 12_345u32;
    let mut step = move || {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i128::from(20_000 + (dice >> 16)) << 40
    };
    for i in 0..QUEUES {
        tree.insert(Box::new(Node { link: RBTreeLink::new(), key: step() + i128::from(i) }));
    }
    let mut group = c.benchmark_group("a bare tree");
    group.throughput(criterion::Throughput::Elements(1000));
    let mut turn = move || {
        if let Some(mut node) = tree.front_mut().remove() {
            node.key += step();
            tree.insert(node);
        }
    };
    group.bench_function(format!("{QUEUES} members, first out and in again"), |b| {
        b.iter(|| (0..1000).for_each(|_| turn()))
    });
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
