//! SQL: `select player, sum(score) ... where year between ... group by player order by sum desc`: the selection in the
//! drive; grouping, sums and order on the host.

use super::{App, Digest, Work, random};
use rand::Rng;
use std::collections::HashMap;

const RECORD: usize = 32;
/// Of the years 0 to 99, these.
const YEARS: (u32, u32) = (90, 99);
const PLAYERS: u32 = 2_000;

pub(super) const APP: App = App {
    name: "sql",
    kernel: "sql",
    paper: "SQL query",
    expand: None,
    unit: RECORD,
    data: "records of 32 bytes, of 2,000 players and 100 years, of which the query wants ten",
    generate,
    params: |_| vec![YEARS.0, YEARS.1],
    host: |_| Box::new(Query { select: true, sums: HashMap::new() }),
    rest: |_| Box::new(Query { select: false, sums: HashMap::new() }),
    host_items: &["Query", "fn two"],
    rest_items: &["Query", "fn two"],
    source: include_str!("sql.rs"),
    kernel_source: include_str!("../../../../fpga/kernels/src/sql.rs"),
    built: "rtl",
    built_source: include_str!("../../../../fpga/rtl/kernels/weld_sql.v"),
};

fn generate(bytes: usize) -> Vec<u8> {
    let (mut rng, mut data) = (random(4), Vec::with_capacity(bytes));
    for n in 0..(bytes / RECORD).max(100) {
        let player = rng.random_range(0..PLAYERS);
        let two = |rng: &mut rand::rngs::SmallRng, most: u32| rng.random_range(0..most);
        let (score, month, day, year) =
            (two(&mut rng, 100), two(&mut rng, 12) + 1, two(&mut rng, 28) + 1, two(&mut rng, 100));
        data.extend(format!("round{n:07}player{player:06}{score:02}{month:02}{day:02}{year:02}").as_bytes());
    }
    data
}

fn two(digits: &[u8]) -> u32 {
    u32::from(digits[0] - b'0') * 10 + u32::from(digits[1] - b'0')
}

struct Query {
    /// The selection is its own, too.
    select: bool,
    sums: HashMap<[u8; 12], u64>,
}

impl Work for Query {
    fn piece(&mut self, data: &[u8]) {
        for record in data.chunks_exact(RECORD) {
            if self.select && !(YEARS.0..=YEARS.1).contains(&two(&record[30..])) {
                continue;
            }
            let mut player = [0; 12];
            player.copy_from_slice(&record[12..24]);
            *self.sums.entry(player).or_default() += u64::from(two(&record[24..]));
        }
    }

    fn end(&mut self) -> String {
        let mut order: Vec<_> = self.sums.drain().collect();
        order.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut lines = Digest::default();
        order.iter().for_each(|(player, sum)| lines.add(&[&player[..], &sum.to_le_bytes()].concat()));
        lines.say("players")
    }
}
