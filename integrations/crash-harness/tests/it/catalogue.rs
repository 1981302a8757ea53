//! Every operation of the catalogue, from one table (`src/catalogue/`): what its command does is what its micro-ops do
//! one by one, on a device and on a directory of the host; malformed ones are refused alike; none leaves a part of
//! itself on a full device. The crash states of the same table are workloads of `weldfs crash`.

use std::collections::BTreeSet;
use std::sync::Arc;
use weldfs::{Client, Queue};
use weldfs_ciscops::program::{Else, Micro};
use weldfs_ciscops::{At, Command, Durability, Errno, Handle, Op, OpenFlags, StatfsBody, TxnMode};
use weldfs_crash_harness::catalogue::{
    Answer, COMPOSED, Effect, Form, Given, How, Machine, Ops, Planned, Row, Thing, World, apply, keys, make, open_all,
    perform, picture, steps, table, wrong,
};
use weldfs_crash_harness::hand::{fresh, small_layout};
use weldfs_device::DeviceConfig;
use weldfs_fs::driver::Direct;
use weldfs_journal::Medium;
use weldfs_kernel_shim::{Embedded, EmbeddedDir, Source};
use weldfs_media::RamMedium;

const MODES: [TxnMode; 3] = [TxnMode::Default, TxnMode::Macro, TxnMode::Micro];

/// Bytes that are different everywhere, and for each seed.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i * 31 + i / 251 + seed * 97) % 253) as u8).collect()
}

/// The operands of one case.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Bytes of the two files there are.
    sizes: (usize, usize),
    off: u64,
    len: usize,
}

/// Around the bounds of blocks, data units, pieces and inline payloads, and behind the end of the file.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let lens = [1, 16, 100, 511, 512, 4096, 4100, 9000, 0, 65_536 + 32];
    let offs = [0, 10, 512, 4095, 4096, 20_000];
    let sizes = [(5000, 40), (4096, 8192), (100, 0), (0, 700)];
    for (i, len) in lens.into_iter().enumerate() {
        for j in 0..2 {
            cases.push(Case { sizes: sizes[(i + j) % 4], off: offs[(i * 5 + j * 3) % 6], len });
        }
    }
    cases
}

/// A directory of its own with two files, and what a row makes of them.
fn given(m: &mut dyn Machine, dir: &str, case: Case, keys: [u64; 2]) -> Given {
    make(m, &Effect::Mkdir { path: dir.into() }, Ops::default()).expect("a directory");
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("{dir}/{name}"));
    for (path, seed, size) in [(&a, 1, case.sizes.0), (&b, 2, case.sizes.1)] {
        let effect = Effect::Write { path: path.clone(), how: How::New, at: Some(0), data: bytes(seed, size) };
        make(m, &effect, Ops::default()).expect("a file");
    }
    let world = picture(m, dir).expect("a picture");
    Given { a, b, c, off: case.off, data: bytes(case.len as u64, case.len), keys, world }
}

/// What must stand there afterwards.
fn wanted(given: &Given, planned: &Planned, seen: &World) -> World {
    let (mut world, done) = (given.world.clone(), if planned.errno.is_some() { &[][..] } else { &planned.effects });
    planned.before.iter().chain(done).for_each(|effect| apply(&mut world, effect, seen).expect("an effect"));
    world
}

/// Runs a row on a machine, and judges it by the table.
fn judged(m: &mut dyn Machine, row: &Row, dir: &str, case: Case, keys: [u64; 2], ops: Ops) -> Answer {
    let given = given(m, dir, case, keys);
    let planned = (row.plan)(&given);
    let about = format!("{} {case:?} {ops:?}", row.name());
    let said = perform(m, row, &planned, ops).unwrap_or_else(|e| panic!("{about}: {e}"));
    assert_eq!(said.status, planned.errno.map_or(0, |e| e.0), "{about}");
    if planned.errno.is_none() {
        assert_eq!(said.results, planned.results, "{about}: results");
    }
    if planned.errno.is_none() || !planned.shown.is_empty() && said.results == planned.results {
        assert!(said.shown == planned.shown, "{about}: {:02x?}, not {:02x?}", said.shown, planned.shown);
    }
    let seen = picture(m, dir).expect("a picture");
    assert_eq!(seen, wanted(&given, &planned, &seen), "{about}: files");
    said
}

fn by_hand(bytes: u64) -> Direct {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(bytes));
    let hand = fresh(&medium, &small_layout(1 << 20), 7).expect("an image");
    Direct::new(hand.store().clone(), 12 << 20)
}

#[test]
fn every_operation_of_the_catalogue_is_in_the_table() {
    let there: BTreeSet<_> = table().iter().map(|row| row.op).collect();
    let names = weldfs_ciscops::catalogue::NAMES.into_iter().chain(COMPOSED);
    assert_eq!(there, names.collect());
    let rows: BTreeSet<_> = table().iter().map(Row::name).collect();
    assert_eq!(rows.len(), table().len(), "each form once");
}

#[test]
fn every_operation_is_its_micro_ops_one_by_one() {
    let (mut one, mut many) = (by_hand(32 << 20), by_hand(32 << 20));
    let names = [keys(&mut one), keys(&mut many)];
    let mut dirs = 0;
    for row in table() {
        // No other client can do that by single operations in one picture: see its own test.
        if row.op == "read_dir_plus" {
            continue;
        }
        for (i, case) in cases().into_iter().enumerate() {
            let (dir, ops) = (format!("d{dirs}"), Ops { mode: MODES[i % 3], ..Ops::default() });
            dirs += 1;
            let said = judged(&mut one, &row, &dir, case, names[0], ops);
            let given = given(&mut many, &dir, case, names[1]);
            let planned = (row.plan)(&given);
            let stepped = steps::perform(&mut many, &row, &planned).expect("its steps");
            let about = format!("{} {case:?} {ops:?}", row.name());
            assert_eq!(said.status, stepped.status, "{about}");
            if said.status == 0 {
                assert_eq!(said, stepped, "{about}");
            }
            let seen = picture(&mut many, &dir).expect("a picture");
            assert_eq!(seen, wanted(&given, &planned, &seen), "{about}: files of the steps");
            for m in [&mut one, &mut many] {
                clear(m, &dir);
            }
        }
    }
}

/// Removes a directory and what is in it.
fn clear(m: &mut dyn Machine, dir: &str) {
    let world = picture(m, dir).expect("a picture");
    let thing = |path: &String| (path.clone(), world[path] == Thing::Directory);
    let all: Vec<_> = world.keys().rev().map(thing).chain([(dir.to_owned(), true)]).collect();
    for (path, is_dir) in all {
        let (base, path) = (Handle::ROOT, m.put(0, path.as_bytes()));
        let op = if is_dir { Op::Rmdir { base, path } } else { Op::Unlink { base, path } };
        m.run(&Command::new(0, op)).ok().expect("it goes");
    }
}

/// A device and a directory of the host.
struct Sides {
    device: Embedded,
    _dir: tempfile::TempDir,
    queues: [Queue; 2],
    _clients: [Client; 2],
    keys: [[u64; 2]; 2],
}

fn sides() -> Sides {
    let config = DeviceConfig { durability: Durability::Volatile, cores: 1, ..DeviceConfig::default() };
    let device = Embedded::open(&Source::Ram(64 << 20), config).expect("a device");
    let dir = tempfile::tempdir().expect("a directory");
    let host = EmbeddedDir::open(dir.path()).expect("a directory that is served");
    let clients = [Client::with(Arc::new(device.clone())), Client::with(Arc::new(host))];
    let clients = clients.map(|c| c.expect("a client"));
    let mut queues = clients.each_ref().map(|c| c.queue(8, 12 << 20).expect("a queue"));
    let keys = queues.each_mut().map(|queue| keys(queue));
    Sides { device, _dir: dir, queues, _clients: clients, keys }
}

#[test]
fn every_operation_does_on_a_device_what_it_does_on_a_directory_of_the_host() {
    let mut sides = sides();
    let mut dirs = 0;
    for row in table() {
        for (i, case) in cases().into_iter().enumerate() {
            let (dir, ops) = (format!("d{dirs}"), Ops { mode: MODES[i % 3], durable: i % 4 == 0, ..Ops::default() });
            dirs += 1;
            let [device, host] = &mut sides.queues;
            let said = judged(device, &row, &dir, case, sides.keys[0], ops);
            clear(device, &dir);
            if row.on_host {
                // A directory of the host promises no MacroTx.
                let mode = if ops.mode == TxnMode::Macro { TxnMode::Micro } else { ops.mode };
                let there = judged(host, &row, &dir, case, sides.keys[1], Ops { mode, ..ops });
                assert_eq!(said, there, "{} {case:?} {ops:?} (left: device, right: host)", row.name());
                clear(host, &dir);
            } else {
                let given = given(host, &dir, case, sides.keys[1]);
                let planned = (row.plan)(&given);
                let refused = perform(host, &row, &planned, ops).expect("an answer");
                assert_eq!(Errno(refused.status), Errno::OPNOTSUPP, "{}", row.name());
                let (seen, mut world) = (picture(host, &dir).expect("a picture"), given.world);
                planned.before.iter().for_each(|effect| apply(&mut world, effect, &seen).expect("an effect"));
                assert_eq!(seen, world, "{}", row.name());
                clear(host, &dir);
            }
        }
    }
    assert!(!sides.device.device().is_poisoned());
}

const OTHERWISE: &str = "files opened for something else";

/// Whether a step that may be passed by names a handle.
fn passes_a_handle(micros: &[Micro]) -> bool {
    use Micro::*;
    let names = |m: &Micro| {
        matches!(m, Open { .. } | Use { .. } | Rename { .. } | Link { .. } | Mkdir { .. } | Symlink { .. })
            || matches!(m, Unlink { .. } | Rmdir { .. } | SetAttr { .. })
    };
    micros.iter().enumerate().any(|(i, m)| match m {
        Guard { otherwise: Else::Skip(n), .. } => micros.iter().skip(i + 1).take((*n).into()).any(names),
        _ => false,
    })
}

/// Every malformed form of a row's command, on a machine; and what its files look like afterwards.
fn refused(
    m: &mut dyn Machine,
    row: &Row,
    dir: &str,
    keys: [u64; 2],
    rolls_back: bool,
) -> Vec<(&'static str, Errno, i32)> {
    let case = Case { sizes: (5000, 4096), off: 512, len: 1024 };
    let given = given(m, dir, case, keys);
    let planned = (row.plan)(&given);
    for effect in &planned.before {
        make(m, effect, Ops::default()).expect("what it needs");
    }
    let before = picture(m, dir).expect("a picture");
    let handles = open_all(m, &planned.opens).expect("its files");
    // A directory of the host takes nothing back where a handle turns out to be none after something was done, and does
    // not look at that of a step which is passed by: not tried there.
    let passes = match &planned.form {
        Form::Program(_, body) => passes_a_handle(body(&handles).expect("a program").program().micros()),
        _ => false,
    };
    let stays = |errno: Errno| !rolls_back && (planned.effects.len() > 1 || passes) && errno == Errno::BADF;
    let mut said = Vec::new();
    let mut try_all = |m: &mut dyn Machine, all: Vec<wrong::Wrong>| {
        for w in all {
            if stays(w.errno) {
                said.push((w.what, w.errno, w.errno.0));
                continue;
            }
            said.push((w.what, w.errno, wrong::submit(m, &w.sqe).status));
            let now = picture(m, dir).expect("a picture");
            assert_eq!(now, before, "{}: {}", row.name(), w.what);
        }
    };
    match &planned.form {
        Form::Program(ins, body) => {
            let body = body(&handles).expect("a program");
            let all = wrong::programs(m, ins, &body);
            try_all(m, all);
        }
        Form::One(single) => {
            let all = wrong::singles(m, single, &handles);
            try_all(m, all);
        }
        Form::Batch(items) => {
            for single in items {
                let all = wrong::singles(m, single, &handles);
                try_all(m, all);
            }
            // A batch in a batch.
            let (items, results) = (m.put(0, &[0; 64]), m.put(64, &[0; 32]));
            let sqe = Command::new(0, Op::Batch { items, results }).encode();
            said.push(("a batch in a batch", Errno::INVAL, wrong::submit(m, &sqe).status));
        }
        Form::Transaction(..) => {
            let (txn, h, src) = (Handle { index: 60_000, generation: 7 }, handles[0], m.put(0, b"x"));
            for op in [Op::TxnCommit { txn }, Op::TxnAbort { txn }, Op::TxnWrite { txn, h, at: At::End, src }] {
                said.push(("an unknown transaction", Errno::BADF, m.run(&Command::new(0, op)).status));
            }
            let at = At::Offset(1 << 63);
            let status = m.run(&Command::new(0, Op::TxnWrite { txn, h, at, src })).status;
            said.push(("an offset out of range", Errno::INVAL, status));
        }
    }
    // Files that were opened for something else.
    let other = |(path, flags): &(String, OpenFlags)| {
        (path.clone(), if *flags == OpenFlags::READ { OpenFlags::WRITE } else { OpenFlags::READ })
    };
    let elsewhere: Vec<_> =
        planned.opens.iter().filter(|(_, f)| !f.contains(OpenFlags::DIRECTORY)).map(other).collect();
    let is_one = elsewhere.len() == planned.opens.len() && !elsewhere.is_empty();
    if stays(Errno::BADF) && is_one && !matches!(planned.form, Form::Batch(_)) {
        said.push((OTHERWISE, Errno::BADF, Errno::BADF.0));
    } else if is_one && !matches!(planned.form, Form::Batch(_)) {
        let others = open_all(m, &elsewhere).expect("the files");
        let done =
            weldfs_crash_harness::catalogue::command(m, &planned.form, &others, Ops::default()).expect("an answer");
        said.push((OTHERWISE, Errno::BADF, done.status));
        close(m, others);
    }
    close(m, handles);
    assert_eq!(picture(m, dir).expect("a picture"), before, "{}: something was changed", row.name());
    said
}

fn close(m: &mut dyn Machine, handles: Vec<Handle>) {
    for h in handles {
        m.run(&Command::new(0, Op::Close { h })).ok().expect("it was open");
    }
}

#[test]
fn malformed_operands_of_every_operation_are_refused_alike_and_change_nothing() {
    let (mut sides, mut count, mut bad) = (sides(), 0, Vec::new());
    for (i, row) in table().into_iter().enumerate() {
        let dir = format!("w{i}");
        let [device, host] = &mut sides.queues;
        let said = refused(device, &row, &dir, sides.keys[0], true);
        assert!(said.len() >= 4, "{}: only {} ways to be wrong", row.name(), said.len());
        count += said.len();
        let (wrong, name) = (|(_, errno, status): &&(&str, Errno, i32)| errno.0 != *status, row.name());
        bad.extend(said.iter().filter(wrong).map(|w| format!("{name}: {w:?}")));
        let there = refused(host, &row, &dir, sides.keys[1], false);
        assert!(!row.on_host || said.len() == there.len(), "{name}: {} ways, {} there", said.len(), there.len());
        let differ = said.iter().zip(&there).filter(|(a, b)| a != b && row.on_host);
        bad.extend(differ.map(|(a, b)| format!("{name}: {a:?} on a device, {b:?} on the host")));
        clear(device, &dir);
        clear(host, &dir);
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(count > 600, "{count}");
}

fn free_blocks(m: &mut dyn Machine) -> u64 {
    let out = weldfs_ciscops::PoolRange::new(0, size_of::<StatfsBody>() as u32);
    m.run(&Command::new(0, Op::Statfs { out })).ok().expect("statfs");
    use zerocopy::FromBytes;
    StatfsBody::read_from_bytes(&m.take(out)).expect("a body").bfree
}

#[test]
fn every_operation_on_a_full_device_works_or_leaves_nothing_and_space_comes_back() {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(6 << 20));
    let hand = fresh(&medium, &small_layout(256 << 10), 7).expect("an image");
    let store = hand.store().clone();
    let mut m = Direct::new(store.clone(), 12 << 20);
    let (keys, mut full, mut fitted) = (keys(&mut m), 0, 0);
    let settle = || {
        store.reclaim_all().expect("reclaim");
        store.checkpoint().expect("a checkpoint");
    };
    // The first round leaves what the tree grows to.
    make(&mut m, &Effect::Mkdir { path: "full".into() }, Ops::default()).expect("a directory");
    fill(&mut m, 2);
    ["full", "filler"].into_iter().for_each(|dir| clear(&mut m, dir));
    settle();
    let (empty, case) = (free_blocks(&mut m), Case { sizes: (9000, 5000), off: 4000, len: 200 << 10 });
    for (i, row) in table().into_iter().filter(|row| row.op != "read_dir_plus").enumerate() {
        for mode in [TxnMode::Macro, TxnMode::Micro] {
            // Room for all of it, for a part, for next to nothing.
            for room in [120, 30, 2] {
                let ops = Ops { mode, durable: i % 2 == 0, ..Ops::default() };
                let about = format!("{} {ops:?} {room} blocks", row.name());
                let given = given(&mut m, "full", case, keys);
                let planned = (row.plan)(&given);
                planned.before.iter().for_each(|e| make(&mut m, e, Ops::default()).expect("what it needs"));
                fill(&mut m, room);
                let before = picture(&mut m, "full").expect("a picture");
                let rest = Planned { before: Vec::new(), ..planned };
                let said = perform(&mut m, &row, &rest, ops).expect("an answer");
                let seen = picture(&mut m, "full").expect("a picture");
                if said.status == Errno::NOSPC.0 {
                    full += 1;
                    assert_eq!(seen, before, "{about}: a part of it stayed");
                } else {
                    assert_eq!(said.status, rest.errno.map_or(0, |e| e.0), "{about}");
                    fitted += 1;
                    if !row.elements || rest.results == said.results {
                        let mut world = before;
                        let done = if rest.errno.is_some() { &[][..] } else { &rest.effects };
                        done.iter().for_each(|effect| apply(&mut world, effect, &seen).expect("an effect"));
                        assert_eq!(seen, world, "{about}");
                    }
                }
                clear(&mut m, "full");
                clear(&mut m, "filler");
                settle();
                assert_eq!(free_blocks(&mut m), empty, "{about}: space that does not come back");
            }
        }
        if i % 8 == 0 {
            let options = weldfs_crash_harness::hand::small_mount(9);
            let copy: Arc<dyn Medium> = medium.clone();
            let report = weldfs_store::fsck::fsck(copy, options, true).expect("fsck");
            assert!(report.clean, "after {}: {:?}", row.name(), report.problems);
        }
    }
    assert!(full > 60 && fitted > 60, "{full} were refused, {fitted} fitted");
}

/// Fills the device up to so many free blocks.
fn fill(m: &mut Direct, room: u64) {
    make(m, &Effect::Mkdir { path: "filler".into() }, Ops::default()).expect("a directory");
    let path = "filler/f".to_owned();
    let new = Effect::Write { path: path.clone(), how: How::New, at: Some(0), data: vec![7; 4096] };
    make(m, &new, Ops::default()).expect("a file");
    for piece in [1 << 20, 64 << 10, 4096] {
        while free_blocks(m) > room + piece / 4096 {
            let more =
                Effect::Write { path: path.clone(), how: How::Existing, at: None, data: vec![7; piece as usize] };
            if make(m, &more, Ops::default()).is_err() {
                break;
            }
        }
    }
}

#[test]
fn the_page_of_tests_names_each_operation_that_is_not_checked_like_the_others() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/TESTING.md");
    let text = std::fs::read_to_string(page).expect("the page");
    let (_, after) = text.split_once("\n| not like the others |").expect("the table of these");
    let (lines, _) = after.split_once("\n\n").expect("its end");
    let named = lines.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
    let roomy = weldfs_crash_harness::states::generate::roomy();
    let larger = |row: &Row| roomy.iter().any(|w| w.trace().starts_with(&format!("fused {} ", row.name())));
    let odd = table().into_iter().filter(|row| !row.on_host || row.op == "read_dir_plus" || larger(row));
    assert_eq!(named.collect::<BTreeSet<_>>(), odd.map(|row| row.op).collect());
}
