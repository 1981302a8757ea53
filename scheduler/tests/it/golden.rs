//! A schedule that can be followed by hand: one tenant, one core, costs from the constant table (a simple micro-op
//! costs 1, a checksum 3, so an append-checksum-write 5), charged when a command completes. File 1 holds an
//! append-checksum-write, file 2 a read and a write.

use std::collections::BTreeMap;

use weldfs_scheduler::{Cost, Entry, PolicyKind, TenantId, Token};

const UNIT_NS: u64 = 1_000;
const ME: TenantId = TenantId(0);

/// A command: its file, and name and cost of its micro-ops.
struct Command {
    inode: u64,
    micros: &'static [(&'static str, u64)],
}

const COMMANDS: [Command; 3] = [
    Command { inode: 1, micros: &[("append", 1), ("checksum", 3), ("write", 1)] },
    Command { inode: 2, micros: &[("read", 1)] },
    Command { inode: 2, micros: &[("write", 1)] },
];

/// Runs the commands; the slices in order ("file.micro-op", those of one slice joined by +), and each file's virtual
/// runtime at the end, units.
fn run(kind: PolicyKind, quantum: u64) -> (Vec<String>, BTreeMap<u64, u64>) {
    let mut policy = kind.build(8);
    let entry = |c: usize| Entry {
        tenant: ME,
        inode: COMMANDS[c].inode,
        token: Token(c as u32),
        request_ns: quantum * UNIT_NS,
    };
    (0..COMMANDS.len()).for_each(|c| policy.enqueue(entry(c)));
    let (mut done, mut slices) = ([0; 3], Vec::new());
    while let Some(picked) = policy.pick() {
        let c = picked.token.0 as usize;
        let (mut age, mut names) = (0, Vec::new());
        // Gives way at a boundary once the slice is a quantum old and another waits.
        while done[c] < COMMANDS[c].micros.len() && (age < quantum || policy.is_empty()) {
            let (name, cost) = COMMANDS[c].micros[done[c]];
            names.push(name);
            age += cost;
            done[c] += 1;
        }
        slices.push(format!("{}.{}", COMMANDS[c].inode, names.join("+")));
        if done[c] == COMMANDS[c].micros.len() {
            let cost: u64 = COMMANDS[c].micros.iter().map(|m| m.1).sum();
            policy.account(ME, picked.inode, Cost { time_ns: cost * UNIT_NS, ..Cost::default() });
        } else {
            policy.enqueue(picked);
        }
    }
    let vruntimes: BTreeMap<_, _> = policy.queues().iter().map(|q| (q.inode, q.vruntime_ns / UNIT_NS)).collect();
    let tenant = policy.state().tenants.first().map_or(0, |t| t.vruntime_ns / UNIT_NS);
    assert_eq!(tenant, vruntimes.values().sum::<u64>(), "the tenant pays for both files");
    (slices, vruntimes)
}

#[test]
fn with_a_quantum_of_five_the_fused_command_runs_whole_and_then_both_commands_of_file_two() {
    let (cfs, vruntimes) = run(PolicyKind::Cfs, 5);
    let (rr, _) = run(PolicyKind::Rr, 5);
    println!("quantum 5: cfs {cfs:?}, rr {rr:?}");
    assert_eq!(cfs, ["1.append+checksum+write", "2.read", "2.write"]);
    assert_eq!((vruntimes[&1], vruntimes[&2]), (5, 2));
    assert_eq!(rr, ["1.append+checksum+write", "2.read", "2.write"]);
}

#[test]
fn with_a_quantum_of_one_file_two_gets_between_the_micro_ops() {
    let (cfs, vruntimes) = run(PolicyKind::Cfs, 1);
    let (rr, _) = run(PolicyKind::Rr, 1);
    println!("quantum 1: cfs {cfs:?}, rr {rr:?}");
    // Charged at completion: after its read file 2 has run 1, file 1 still 0, so file 1 goes on until it is charged 5.
    assert_eq!(cfs, ["1.append", "2.read", "1.checksum", "1.write", "2.write"]);
    assert_eq!((vruntimes[&1], vruntimes[&2]), (5, 2));
    // RR takes turns whatever was charged.
    assert_eq!(rr, ["1.append", "2.read", "1.checksum", "2.write", "1.write"]);
}
