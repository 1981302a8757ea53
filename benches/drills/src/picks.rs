//! What is counted under callgrind: `picks POLICY CASE ROUNDS`, with collection switched on inside `work`. `bare
//! tree ROUNDS` is the floor.
//!
//! The gate (`./test instructions`) runs it twice with different numbers of rounds; the difference is the work alone.

#[path = "../../../scheduler/benches/drill/mod.rs"]
mod drill;

use drill::{Bare, Case, STAY, prepare, work};
use weldfs_scheduler::PolicyKind;

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, case, rounds] = args.as_slice() else { return Err("usage: picks POLICY CASE ROUNDS".into()) };
    let rounds: u32 = rounds.parse().map_err(|e| format!("{e}"))?;
    if (kind.as_str(), case.as_str()) == ("bare", "tree") {
        Bare::new().work(rounds);
        return Ok(());
    }
    let kind: PolicyKind = kind.parse().map_err(|e| format!("{e}"))?;
    let case = Case::ALL.into_iter().find(|c| c.name() == case).ok_or("no such case")?;
    if case == Case::Stays && rounds > STAY {
        return Err(format!("at most {STAY} rounds"));
    }
    let mut policy = prepare(kind, case);
    work(&mut *policy, case, rounds);
    println!("{} {}: {rounds} rounds, {} runnable", policy.name(), case.name(), policy.len());
    Ok(())
}
