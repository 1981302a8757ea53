//! A model of files, and a driver that does the same to a store through plans.

use super::*;
use std::collections::BTreeMap;
use weldfs_journal::{AlignedBuf, Lsn};

/// One step of a random run.
#[derive(Debug, Clone)]
pub enum Act {
    Create(u8),
    Write {
        file: u8,
        blk: u64,
        count: u32,
        fill: u8,
    },
    Reserve {
        file: u8,
        blk: u64,
        count: u32,
    },
    Patch {
        file: u8,
        off: u64,
        len: u32,
        fill: u8,
    },
    Zero {
        file: u8,
        off: u64,
        len: u32,
    },
    Unmap {
        file: u8,
        blk: u64,
        count: u32,
    },
    Cut {
        file: u8,
        blk: u64,
        count: u64,
    },
    /// Cut and write in one record, as O_TRUNC with a write does.
    Replace {
        file: u8,
        fill: u8,
    },
    SetXattr {
        file: u8,
        name: u8,
        len: u16,
    },
    DelXattr {
        file: u8,
        name: u8,
    },
    Unlink(u8),
    Checkpoint,
    Reclaim,
    Crash,
    Unmount,
}

pub fn act() -> impl Strategy<Value = Act> {
    let file = 0u8..6;
    let blk = prop_oneof![0u64..12, 250u64..262, Just(5000u64)];
    prop_oneof![
        6 => file.clone().prop_map(Act::Create),
        8 => (file.clone(), blk.clone(), 1u32..6, any::<u8>())
            .prop_map(|(file, blk, count, fill)| Act::Write { file, blk, count, fill }),
        2 => (file.clone(), blk.clone(), 1u32..8).prop_map(|(file, blk, count)| Act::Reserve { file, blk, count }),
        8 => (file.clone(), blk.clone(), 0u64..4096, 1u32..600, any::<u8>())
            .prop_map(|(file, blk, o, len, fill)| Act::Patch { file, off: blk * 4096 + o, len, fill }),
        3 => (file.clone(), blk.clone(), 0u64..4096, 1u32..4096)
            .prop_map(|(file, blk, o, len)| Act::Zero { file, off: blk * 4096 + o, len }),
        3 => (file.clone(), blk.clone(), 1u32..10).prop_map(|(file, blk, count)| Act::Unmap { file, blk, count }),
        3 => (file.clone(), blk, 1u64..600).prop_map(|(file, blk, count)| Act::Cut { file, blk, count }),
        2 => (file.clone(), any::<u8>()).prop_map(|(file, fill)| Act::Replace { file, fill }),
        2 => (file.clone(), 0u8..4, 0u16..2000).prop_map(|(file, name, len)| Act::SetXattr { file, name, len }),
        1 => (file.clone(), 0u8..4).prop_map(|(file, name)| Act::DelXattr { file, name }),
        3 => file.prop_map(Act::Unlink),
        4 => Just(Act::Checkpoint),
        3 => Just(Act::Reclaim),
        2 => Just(Act::Crash),
        1 => Just(Act::Unmount),
    ]
}

#[derive(Debug, Clone)]
enum Block {
    Data(Box<[u8; BLOCK]>),
    Unwritten,
}

#[derive(Debug, Clone)]
struct File {
    ino: InodeNo,
    blocks: BTreeMap<u64, Block>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The store and what it must hold.
pub struct World {
    store: Option<Arc<Store>>,
    files: BTreeMap<u8, File>,
    last: std::cell::Cell<Lsn>,
}

/// A file as it can be compared: attributes, and a checksum per block held.
pub type Shown = BTreeMap<Vec<u8>, (u64, BTreeMap<Vec<u8>, u32>, BTreeMap<u64, u32>)>;

/// Blocks that runs touch.
fn places() -> impl Iterator<Item = u64> {
    (0..30).chain(245..300).chain(4995..5010)
}

fn errno<T>(r: FsResult<T>) -> Result<T, Errno> {
    r.map_err(Errno::from)
}

impl World {
    pub fn new(store: Arc<Store>) -> World {
        World { store: Some(store), files: BTreeMap::new(), last: Default::default() }
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    pub fn ino(&self, file: u8) -> InodeNo {
        self.files[&file].ino
    }

    pub fn name(n: u32) -> Vec<u8> {
        format!("file-{n}").into_bytes()
    }

    /// Drops the store (with a clean unmount or as a crash would) and mounts again.
    pub fn remount(mut self, mount: impl FnOnce() -> Arc<Store>, clean: bool) -> World {
        if clean {
            self.store().unmount().unwrap();
        }
        self.store = None;
        self.store = Some(mount());
        self
    }

    /// Begins, fills, commits; waits as a device would.
    fn commit(&self, need: &Need, mut fill: impl FnMut(&mut Plan<'_>) -> FsResult<()>) -> Result<(), Errno> {
        let store = self.store();
        for _ in 0..50 {
            let mut plan = match store.begin(need) {
                Ok(p) => p,
                Err(FsError::Wait(Wait::Checkpoint)) => {
                    errno(store.checkpoint())?;
                    continue;
                }
                Err(FsError::Wait(Wait::Reclaim)) => {
                    self.reclaim();
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            let done = fill(&mut plan).and_then(|()| {
                assert!(crate::effect::encoded_len_max(plan.effects()) <= need.log_bytes + 1);
                store.commit(&mut plan, RecordHead::op())
            });
            match done {
                Err(FsError::Miss(m)) => errno(store.fetch(&m))?,
                Err(e) => return Err(e.into()),
                Ok(appended) => {
                    self.last.set(appended.end);
                    return Ok(());
                }
            }
        }
        panic!("waits for ever for {need:?}: {:?} {:?}", store.stats(), store.statfs());
    }

    pub fn reclaim(&self) {
        match self.store().reclaim_step() {
            Err(FsError::Wait(_)) => {
                self.store().checkpoint().unwrap();
            }
            other => {
                other.unwrap();
            }
        }
    }

    pub fn settle(&self) {
        self.store().reclaim_all().unwrap();
        self.store().checkpoint().unwrap();
        self.store().checkpoint().unwrap();
    }

    pub fn run(&mut self, act: &Act) {
        match self.try_run(act) {
            Ok(()) | Err(Errno::NOSPC) => {}
            Err(e) => panic!("{act:?}: {e}"),
        }
    }

    pub fn run_named(&mut self, n: u32) {
        self.create(&World::name(n), None).unwrap();
    }

    pub fn unlink_named(&mut self, n: u32) {
        self.unlink(&World::name(n)).unwrap();
    }

    fn create(&mut self, name: &[u8], file: Option<u8>) -> Result<(), Errno> {
        let store = self.store();
        let cookie = errno(store.blocking(|| store.dirent_slot(InodeNo::ROOT, name)))?;
        self.create_at(name, file, cookie)
    }

    /// Names a new inode at a chosen cookie.
    pub fn name_at(&mut self, n: u32, cookie: u64) {
        self.create_at(&World::name(n), None, cookie).unwrap();
    }

    fn create_at(&mut self, name: &[u8], file: Option<u8>, cookie: u64) -> Result<(), Errno> {
        let ino = self.store().alloc_ino();
        let need = Need { log_bytes: 700, meta_keys: 3, may_fail: true, ..Need::default() };
        self.commit(&need, |p| {
            let mut rec = InodeRec::empty(ino);
            (rec.mode, rec.nlink) = (0o100644, 1);
            p.push(Effect::PutInode(Box::new(rec)));
            p.push(Effect::PutDirent { dir: InodeNo::ROOT, cookie, ino, ftype: 8, mark: 0, name: name.into() });
            Ok(())
        })?;
        if let Some(f) = file {
            self.files.insert(f, File { ino, blocks: BTreeMap::new(), xattrs: BTreeMap::new() });
        }
        Ok(())
    }

    fn unlink(&self, name: &[u8]) -> Result<(), Errno> {
        let store = self.store();
        let d = errno(store.blocking(|| store.dirent(InodeNo::ROOT, name)))?.expect("the entry is there");
        let need = Need { log_bytes: 4000, meta_keys: 20, ..Need::default() };
        self.commit(&need, |p| {
            store.dirent_removal(&d)?.into_iter().for_each(|e| p.push(e));
            p.push(Effect::SetAttr(AttrDelta::new(d.ino).nlink(0)));
            p.push(Effect::Orphan { ino: d.ino });
            Ok(())
        })
    }

    /// Maps fresh blocks of one fill byte.
    fn put(&self, p: &mut Plan<'_>, ino: InodeNo, blk: u64, count: u32, fill: u8) -> FsResult<()> {
        let mut done = 0;
        while done < count {
            let run = p.alloc(count - done, ino)?;
            let buf = AlignedBuf::from_slice(&vec![fill; run.count as usize * BLOCK]);
            let crcs = buf.chunks(BLOCK).map(weldfs_functions::crc32c).collect();
            match self.store().writes_directly() {
                true => self.store().medium().write(run.addr.0 * BLOCK as u64, &buf)?,
                false => p.data(run.addr, Arc::new(buf)),
            }
            let state = crate::effect::BlockState::Written;
            p.push(Effect::Map { ino, blk: blk + u64::from(done), addr: run.addr, count: run.count, state, crcs });
            done += run.count;
        }
        Ok(())
    }

    fn growth(&self, f: &File, blk: u64, count: u32) -> (u32, u32) {
        let held = (blk..blk + u64::from(count)).filter(|b| f.blocks.contains_key(b)).count() as u32;
        (count - held, held)
    }

    pub fn try_run(&mut self, act: &Act) -> Result<(), Errno> {
        let id = match act {
            Act::Create(f) => {
                if self.files.contains_key(f) {
                    return Ok(());
                }
                return self.create(&World::name((*f).into()), Some(*f));
            }
            Act::Write { file, .. }
            | Act::Reserve { file, .. }
            | Act::Patch { file, .. }
            | Act::Zero { file, .. }
            | Act::Unmap { file, .. }
            | Act::Cut { file, .. }
            | Act::Replace { file, .. }
            | Act::SetXattr { file, .. }
            | Act::DelXattr { file, .. } => *file,
            Act::Unlink(file) => *file,
            _ => return Ok(()),
        };
        let Some(f) = self.files.get(&id).cloned() else { return Ok(()) };
        match self.change(act, f, id)? {
            Some(f) => self.files.insert(id, f),
            None => self.files.remove(&id),
        };
        Ok(())
    }

    fn change(&self, act: &Act, mut f: File, id: u8) -> Result<Option<File>, Errno> {
        let ino = f.ino;
        let full = |fill: u8| Block::Data(Box::new([fill; BLOCK]));
        match *act {
            Act::Write { blk, count, fill, .. } => {
                let (new_blocks, overwrite_blocks) = self.growth(&f, blk, count);
                let may_fail = new_blocks > 0;
                let need =
                    Need { log_bytes: 1500, new_blocks, overwrite_blocks, meta_keys: 3, may_fail, ..Need::default() };
                self.commit(&need, |p| {
                    self.put(p, ino, blk, count, fill)?;
                    p.push(Effect::SetAttr(AttrDelta::new(ino).size(blk)));
                    Ok(())
                })?;
                (blk..blk + u64::from(count)).for_each(|b| {
                    f.blocks.insert(b, full(fill));
                });
            }
            Act::Reserve { blk, count, .. } => {
                let blk = (blk..).find(|b| (0..count).all(|i| !f.blocks.contains_key(&(b + u64::from(i))))).unwrap();
                let need = Need {
                    log_bytes: 1500,
                    new_blocks: count,
                    overwrite_blocks: 0,
                    meta_keys: 3,
                    may_fail: true,
                    ..Need::default()
                };
                self.commit(&need, |p| {
                    let mut done = 0;
                    while done < count {
                        let run = p.alloc(count - done, ino)?;
                        let (state, crcs) = (crate::effect::BlockState::Unwritten, Default::default());
                        let blk = blk + u64::from(done);
                        p.push(Effect::Map { ino, blk, addr: run.addr, count: run.count, state, crcs });
                        done += run.count;
                    }
                    Ok(())
                })?;
                (blk..blk + u64::from(count)).for_each(|b| {
                    f.blocks.insert(b, Block::Unwritten);
                });
            }
            Act::Patch { off, len, fill, .. } => {
                let len = u64::from(len).min(4096 - off % 4096) as usize;
                let (new_blocks, overwrite_blocks) = self.growth(&f, off / 4096, 1);
                let may_fail = new_blocks > 0;
                let need =
                    Need { log_bytes: 1000, new_blocks, overwrite_blocks, meta_keys: 3, may_fail, ..Need::default() };
                self.commit(&need, |p| {
                    p.push(Effect::Patch { ino, off, bytes: smallvec::smallvec![fill; len] });
                    Ok(())
                })?;
                lay(&mut f, off, len, fill);
            }
            Act::Zero { off, len, .. } => {
                let len = u64::from(len).min(4096 - off % 4096) as usize;
                let need = Need { log_bytes: 100, overwrite_blocks: 1, meta_keys: 3, ..Need::default() };
                self.commit(&need, |p| {
                    p.push(Effect::Zero { ino, off, len: len as u32 });
                    Ok(())
                })?;
                match f.blocks.get(&(off / 4096)) {
                    None => {}
                    Some(_) => lay(&mut f, off, len, 0),
                }
            }
            _ => return self.change_more(act, f, id),
        }
        Ok(Some(f))
    }

    fn change_more(&self, act: &Act, mut f: File, id: u8) -> Result<Option<File>, Errno> {
        let ino = f.ino;
        let full = |fill: u8| Block::Data(Box::new([fill; BLOCK]));
        match *act {
            Act::Unmap { blk, count, .. } => {
                let need = Need { log_bytes: 100, meta_keys: 3, ..Need::default() };
                self.commit(&need, |p| {
                    p.push(Effect::Unmap { ino, blk, count });
                    Ok(())
                })?;
                f.blocks.retain(|b, _| !(blk..blk + u64::from(count)).contains(b));
            }
            Act::Cut { blk, count, .. } => {
                while self.store().cuts_full(ino) {
                    self.reclaim();
                }
                let need = Need { log_bytes: 100, meta_keys: 3, ..Need::default() };
                self.commit(&need, |p| {
                    p.push(Effect::Cut { ino, blk, end: blk + count });
                    Ok(())
                })?;
                f.blocks.retain(|b, _| !(blk..blk + count).contains(b));
            }
            Act::Replace { fill, .. } => {
                while self.store().cuts_full(ino) {
                    self.reclaim();
                }
                let need = Need {
                    log_bytes: 1500,
                    new_blocks: 2,
                    overwrite_blocks: 0,
                    meta_keys: 3,
                    may_fail: true,
                    ..Need::default()
                };
                self.commit(&need, |p| {
                    p.push(Effect::Cut { ino, blk: 0, end: 1 << 40 });
                    self.put(p, ino, 0, 2, fill)
                })?;
                f.blocks = BTreeMap::from([(0, full(fill)), (1, full(fill))]);
            }
            Act::SetXattr { name, len, .. } => {
                let (name, value) = (vec![b'a' + name], vec![name; len.into()]);
                let slot = errno(self.store().blocking(|| self.store().xattr_slot(ino, &name)))?;
                let need = Need { log_bytes: 3000, meta_keys: 3, may_fail: true, ..Need::default() };
                self.commit(&need, |p| {
                    let (name, value) = (name[..].into(), value[..].into());
                    p.push(Effect::PutXattr { ino, slot, name, value });
                    Ok(())
                })?;
                f.xattrs.insert(name, value);
            }
            Act::DelXattr { name, .. } => {
                let name = vec![b'a' + name];
                let Some(x) = errno(self.store().blocking(|| self.store().xattr(ino, &name)))? else {
                    assert!(!f.xattrs.contains_key(&name));
                    return Ok(Some(f));
                };
                let need = Need { log_bytes: 100, meta_keys: 3, ..Need::default() };
                self.commit(&need, |p| {
                    p.push(Effect::DelXattr { ino, slot: x.slot });
                    Ok(())
                })?;
                f.xattrs.remove(&name);
            }
            Act::Unlink(_) => {
                self.unlink(&World::name(id.into()))?;
                return Ok(None);
            }
            _ => {}
        }
        Ok(Some(f))
    }

    /// Position after the last record.
    pub fn last(&self) -> Lsn {
        self.last.get()
    }

    /// What the store must show.
    pub fn expected(&self) -> Shown {
        let crc = |b: &Block| match b {
            Block::Data(d) => weldfs_functions::crc32c(&d[..]),
            Block::Unwritten => weldfs_functions::crc32c(&[0; BLOCK]),
        };
        let show = |f: &File| {
            (
                f.ino.0,
                f.xattrs.iter().map(|(n, v)| (n.clone(), weldfs_functions::crc32c(v))).collect(),
                places().filter_map(|b| Some((b, crc(f.blocks.get(&b)?)))).collect(),
            )
        };
        self.files.iter().map(|(n, f)| (World::name((*n).into()), show(f))).collect()
    }

    /// Everything the store shows equals the model.
    pub fn check(&self) {
        assert_eq!(shown(self.store()), self.expected());
    }

    /// After reclaim: block counts are exact.
    pub fn check_counts(&self) {
        let store = self.store();
        let mut sum = 0;
        for f in self.files.values() {
            let rec = store.inode(f.ino).unwrap().unwrap();
            assert_eq!(rec.blocks, f.blocks.len() as u64, "blocks of {}", f.ino);
            sum += rec.blocks;
        }
        assert_eq!(store.stats().held_blocks, sum);
        assert_eq!(store.statfs().inodes, self.files.len() as u64 + 1);
        let (stats, l) = (store.stats(), &store.ledger);
        assert_eq!(stats.free_blocks + stats.zone_blocks + sum, l.capacity);
        assert_eq!(l.avail.load(Relaxed), stats.free_blocks as i64);
        assert_eq!((l.inflight.load(Relaxed), l.growing.load(Relaxed), l.patched.load(Relaxed)), (0, 0, 0));
    }
}

fn lay(f: &mut File, off: u64, len: usize, fill: u8) {
    let b = f.blocks.entry(off / 4096).or_insert(Block::Unwritten);
    let mut data = match b {
        Block::Data(d) => d.clone(),
        Block::Unwritten => Box::new([0; BLOCK]),
    };
    data[(off % 4096) as usize..(off % 4096) as usize + len].fill(fill);
    *b = Block::Data(data);
}

/// What the store shows.
pub fn shown(store: &Store) -> Shown {
    let mut names = Vec::new();
    let mut after = 0;
    store
        .blocking(|| {
            store.dirents(InodeNo::ROOT, after, &mut |d| {
                names.push((d.name.to_vec(), d.ino));
                after = d.cookie;
                true
            })
        })
        .unwrap();
    let mut out = Shown::new();
    for (name, ino) in names {
        let xattrs = store.blocking(|| store.xattrs(ino)).unwrap();
        let xattrs = xattrs.into_iter().map(|x| (x.name.to_vec(), weldfs_functions::crc32c(&x.value))).collect();
        let mut blocks = BTreeMap::new();
        for blk in places() {
            let mut buf = [0; BLOCK];
            let kind = store.blocking(|| store.read_block(ino, blk, &mut buf)).unwrap();
            if kind == BlockKind::Hole {
                assert_eq!(buf, [0; BLOCK]);
            } else {
                blocks.insert(blk, weldfs_functions::crc32c(&buf));
            }
        }
        out.insert(name, (ino.0, xattrs, blocks));
    }
    out
}
