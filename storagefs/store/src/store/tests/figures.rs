//! Costs per operation, printed: run by hand with `--release --ignored --nocapture figures`. Not gates.

use super::*;
use std::time::Instant;
use weldfs_journal::BlockNo;

fn per_op(what: &str, n: u32, mut f: impl FnMut(u32)) {
    let (t, cpu) = (Instant::now(), cpu_ns());
    (0..n).for_each(&mut f);
    let wall = t.elapsed().as_nanos() / u128::from(n);
    println!("{what}: {} ns of the thread, {wall} ns wall", (cpu_ns() - cpu) / u64::from(n));
}

fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn create(store: &Store, dir: InodeNo, name: &[u8], mode: u32) -> InodeNo {
    let ino = store.alloc_ino();
    let cookie = store.dirent_slot(dir, name).unwrap();
    let need = Need { log_bytes: 400, meta_keys: 3, may_fail: true, ..Need::default() };
    let mut p = loop {
        match store.begin(&need) {
            Ok(p) => break p,
            Err(FsError::Wait(_)) => {
                store.checkpoint().unwrap();
            }
            Err(e) => panic!("{e}"),
        }
    };
    let mut rec = InodeRec::empty(ino);
    (rec.mode, rec.nlink, rec.parent) = (mode, 1, dir);
    p.push(Effect::PutInode(Box::new(rec)));
    p.push(Effect::PutDirent { dir, cookie, ino, ftype: (mode >> 12) as u8, mark: 0, name: name.into() });
    store.commit(&mut p, RecordHead::op()).unwrap();
    ino
}

fn append(store: &Store, ino: InodeNo, blk: u64) {
    let need = Need { log_bytes: 180, new_blocks: 1, meta_keys: 2, may_fail: true, ..Need::default() };
    let mut p = match store.begin(&need) {
        Ok(p) => p,
        Err(_) => {
            store.checkpoint().unwrap();
            store.begin(&need).unwrap()
        }
    };
    let run = p.alloc(1, ino).unwrap();
    let t = crate::record::Time { sec: blk as i64, nsec: 5 };
    p.push(Effect::SetAttr(AttrDelta::new(ino).size((blk + 1) * 4096).mtime(t).ctime(t)));
    let (addr, state) = (BlockNo(run.addr.0), crate::effect::BlockState::Written);
    p.push(Effect::Map { ino, blk, addr, count: 1, state, crcs: smallvec::smallvec![7] });
    store.commit(&mut p, RecordHead::op()).unwrap();
}

#[test]
#[ignore = "prints costs, run by hand in release"]
fn figures() {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::prefaulted(1 << 30));
    let geometry = GeometryOptions { log_len: Some(64 << 20), ..Default::default() };
    let mkfs = MkfsOptions { geometry, ..Default::default() };
    format(&medium, &mkfs, &ManualClock::default(), &SeededRandom::new(1)).unwrap();
    let mut o = options();
    o.memory = 512 << 20;
    o.verify_data = false;
    let (store, _) = crate::testing::mount(medium.clone(), o.clone()).unwrap();
    let f = create(&store, InodeNo::ROOT, b"log", 0o100644);
    for round in 0..3u64 {
        per_op("append 4 KiB: begin, alloc, commit", 20_000, |i| append(&store, f, round * 20_000 + u64::from(i)));
        per_op("checkpoint of it", 1, |_| {
            store.checkpoint().unwrap();
        });
    }
    per_op("inode() in overlay+tree", 100_000, |_| {
        std::hint::black_box(store.inode(f).unwrap());
    });
    append(&store, f, 0);
    per_op("inode() in overlay", 100_000, |_| {
        std::hint::black_box(store.inode(f).unwrap());
    });
    per_op("block_map of one block (tree)", 100_000, |i| {
        store
            .block_map(f, u64::from(i % 20_000), 1, &mut |_, v| {
                std::hint::black_box(v);
                true
            })
            .unwrap();
    });
    let dir = create(&store, InodeNo::ROOT, b"dir", 0o040755);
    per_op("create, fresh directory", 100_000, |i| {
        create(&store, dir, format!("file{i}").as_bytes(), 0o100644);
    });
    per_op("lookup, overlay", 100_000, |i| {
        std::hint::black_box(store.dirent(dir, format!("file{i}").as_bytes()).unwrap().unwrap());
    });
    per_op("checkpoint of 100,000 creates", 1, |_| {
        store.checkpoint().unwrap();
    });
    per_op("lookup, tree", 100_000, |i| {
        std::hint::black_box(store.dirent(dir, format!("file{i}").as_bytes()).unwrap().unwrap());
    });
    per_op("create, directory of 100,000 in the tree", 50_000, |i| {
        create(&store, dir, format!("more{i}").as_bytes(), 0o100644);
    });
    store.unmount().unwrap();
    drop(store);
    per_op("mount of 150,000 files, clean", 1, |_| drop(crate::testing::mount(medium.clone(), o.clone()).unwrap()));
    let medium = fresh(4 << 20);
    per_op("mount of an empty 4 MiB image", 1000, |_| drop(mount(&medium)));
}

#[test]
#[ignore = "for a profiler, run by hand in release"]
fn appends() {
    let medium: Arc<dyn Medium> = Arc::new(RamMedium::prefaulted(512 << 20));
    let geometry = GeometryOptions { log_len: Some(8 << 20), ..Default::default() };
    let mkfs = MkfsOptions { geometry, ..Default::default() };
    format(&medium, &mkfs, &ManualClock::default(), &SeededRandom::new(1)).unwrap();
    let mut o = options();
    o.memory = 256 << 20;
    let (store, _) = crate::testing::mount(medium, o).unwrap();
    let f = create(&store, InodeNo::ROOT, b"log", 0o100644);
    // Overwrites the first 20,000 blocks over and over: steady state, checkpoints apart.
    for _ in 0..40 {
        per_op("append 4 KiB, steady", 20_000, |i| append(&store, f, u64::from(i)));
        store.checkpoint().unwrap();
    }
}
