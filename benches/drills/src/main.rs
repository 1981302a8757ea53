//! Runs COUNT operations of one KIND, DEPTH at a time, for a tool that counts instructions: `drills KIND DEPTH COUNT
//! WHERE`. Volatile, on a medium in memory.
//!
//! WHERE: `warm` (as the operations before left it) or `tree` (all metadata comes from the tree, in cached pages: the
//! image was unmounted and mounted again), from ring to completion (`ring`); or `inline`, an embedded device's calls
//! (`inline`). What is counted is `work` of either; the difference between two counts is free of start-up:
//! `valgrind --tool=callgrind --toggle-collect='*drill*work*' target/release/drills read 1 3200 warm`, then the same
//! with 1600.
//!
//! A package of its own that depends on nothing that `weldfs` does not: what is built for that is what is counted.

mod inline;
mod kinds;
mod ring;

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_else(|| "read".into());
    let mut number = |or: u64| args.next().and_then(|n| n.parse().ok()).unwrap_or(or);
    let (depth, count) = (number(1), number(3200));
    let place = args.next().unwrap_or_else(|| "warm".into());
    let kinds: &[&str] = if place == "inline" { &kinds::INLINE } else { &kinds::RING };
    assert!(kinds.contains(&kind.as_str()), "KIND is one of {kinds:?}");
    assert!((1..=32).contains(&depth) && count.is_multiple_of(depth), "DEPTH is 1 to 32 and divides COUNT");
    match place.as_str() {
        "inline" => {
            let mut drill = inline::Drill::new();
            drill.drive(&kind, 1, inline::WARM, inline::uncounted);
            drill.drive(&kind, depth, count, inline::work);
        }
        "warm" | "tree" => ring::run(&kind, place == "tree", |drill, turn| {
            drill.drive(&kind, depth, count, turn, ring::work);
        }),
        _ => panic!("WHERE is warm, tree or inline"),
    }
}
