//! Streams under back-pressure: any packets, cut anywhere on both sides, with any credits.

use crate::rig::{catalogue, config, wait, want};
use proptest::prelude::*;
use weldfs_fpga::card::Card;
use weldfs_fpga::config::CardConfig;
use weldfs_fpga::session::Session;

/// Pulls packets until there are `count`.
fn pull_all(session: &Session, count: usize, mut max: impl FnMut() -> usize) -> Vec<Vec<u8>> {
    let (mut packets, mut packet) = (Vec::new(), Vec::new());
    while packets.len() < count {
        let pulled = wait(session.pull(max())).expect("pull");
        packet.extend(pulled.bytes);
        if pulled.eop {
            packets.push(std::mem::take(&mut packet));
        }
    }
    packets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_cut_anywhere_come_back_whole_and_in_order(
        lens in proptest::collection::vec(0usize..3000, 1..6),
        cuts in proptest::collection::vec(1usize..700, 1..8),
        pulls in proptest::collection::vec(1usize..900, 1..8),
        credits in 1u32..5,
        credit_bytes in 64u32..600,
        limited in any::<bool>(),
    ) {
        let drive_bytes_per_s = if limited { 2_000_000_000 } else { 0 };
        let config = CardConfig { credits, credit_bytes, drive_bytes_per_s, inline_bytes: 0, ..config(1) };
        let card = Card::new(config, catalogue()).expect("a card");
        let session = wait(card.open(want("add", 9, 1))).expect("open");
        let packets: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(p, n)| (0..*n).map(|i| (p * 31 + i) as u8).collect()).collect();
        let got = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut cut = cuts.iter().cycle();
                for packet in &packets {
                    let mut rest = &packet[..];
                    while !rest.is_empty() {
                        let n = rest.len().min(*cut.next().expect("a cut"));
                        let last = n == rest.len() && n % 2 == 0;
                        wait(session.push(rest[..n].to_vec(), last)).expect("push");
                        rest = &rest[n..];
                        if rest.is_empty() && !last {
                            wait(session.push(Vec::new(), true)).expect("push");
                        }
                    }
                    if packet.is_empty() {
                        wait(session.push(Vec::new(), true)).expect("push");
                    }
                }
            });
            let mut pull = pulls.iter().cycle();
            pull_all(&session, packets.len(), || *pull.next().expect("a number"))
        });
        let expected: Vec<Vec<u8>> = packets.iter().map(|p| p.iter().map(|b| b.wrapping_add(9)).collect()).collect();
        prop_assert_eq!(got, expected);
        let usage = session.usage();
        prop_assert_eq!(usage.bytes_in, lens.iter().sum::<usize>() as u64);
        prop_assert_eq!(usage.bytes_out, usage.bytes_in);
    }
}
