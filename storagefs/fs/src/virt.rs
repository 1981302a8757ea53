//! Virtual files, as far as they are files: an inode with a flag, and its spec in an attribute that clients neither see
//! nor set. What streams through a kernel when one is read or written is the device's business (`virt` of
//! weldfs-device).

use super::inode_set::Hold;
use super::perm::{self, IFREG, R};
use super::resolve::{self, Last, ROOT, Trail, View, Walker};
use super::strides::Strides;
use super::txn::Txn;
use super::{Cred, SessionView};
use std::sync::Arc;
use weldfs_ciscops::{Errno, Handle, InodeNo, Sink, VirtSpec};
use weldfs_store::Store;
use weldfs_store::effect::Effect;
use weldfs_store::error::{FsError, FsResult, Place};
use weldfs_store::record::{Dirent, FLAG_VIRTUAL, InodeRec, SPEC_NAME};
use weldfs_store::tree::{self, Key};

/// The spec of a virtual file.
///
/// # Errors
/// `Corrupt` when the image has none, or one that no device writes; misses as they come.
pub fn spec_of(store: &Store, ino: InodeNo) -> FsResult<VirtSpec> {
    let corrupt = |what| FsError::corrupt(what, Place::Key(Key::new(tree::kind::INODE, ino.0, 0)), 0, ino.0);
    let found = store.xattr(ino, SPEC_NAME)?.ok_or_else(|| corrupt("virtual file (it has no spec)"))?;
    VirtSpec::decode(&found.value).map_err(|_| corrupt("virtual file (its spec)"))
}

/// The store as it is now, for a walk that no set of inodes is held for.
struct Now<'a>(&'a Store);

impl View for Now<'_> {
    fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>> {
        self.0.inode(ino)
    }

    fn entry(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<Dirent>> {
        self.0.dirent(dir, name)
    }
}

/// What a path of a spec leads to for this session now: a regular file that it may read, or write. Called again after
/// misses and `Turn` with the same `strides` and the same path.
///
/// # Errors
/// Those of paths; EISDIR for a directory, ELOOP for a virtual file, EINVAL for what else is no regular file, EACCES.
pub fn find(
    store: &Store,
    session: &dyn SessionView,
    path: &[u8],
    want: u32,
    strides: &mut Strides,
) -> FsResult<InodeRec> {
    strides.again();
    let found = strides.walk(Walker::of(session), &Now(store), (ROOT, path, Last::Follow), &mut Trail::default())?;
    let rec = resolve::named(&found)?.clone();
    may_stream(&rec, session.cred(), want)?;
    Ok(rec)
}

/// Whether a file can be the real file of a virtual one that is being opened, for who opens it.
pub fn may_stream(rec: &InodeRec, cred: &Cred, want: u32) -> Result<(), Errno> {
    match rec.mode & perm::IFMT {
        perm::IFDIR => Err(Errno::ISDIR),
        IFREG if rec.is_virtual() => Err(Errno::LOOP),
        IFREG => perm::check(rec, cred, want),
        _ => Err(Errno::INVAL),
    }
}

impl Txn<'_> {
    pub(super) fn virt_register_core(&mut self, base: Handle, path: &[u8], mode: u32, spec: &[u8]) -> FsResult<()> {
        VirtSpec::decode(spec)?;
        let at = self.walk(base, path, Last::Name)?;
        self.free_name(&at)?;
        let rec = self.create(&at, IFREG, mode & 0o777, None)?;
        let slot = self.store.xattr_slot(rec.ino, SPEC_NAME)?;
        if let Some(made) = self.inodes.iter_mut().find(|s| s.rec.ino == rec.ino) {
            made.rec.flags |= FLAG_VIRTUAL;
        }
        let (name, value) = (Arc::from(SPEC_NAME), Arc::from(spec));
        self.name_effects.push(Effect::PutXattr { ino: rec.ino, slot, name, value });
        Ok(())
    }

    pub(super) fn virt_spec_core(
        &mut self,
        base: Handle,
        path: &[u8],
        nofollow: bool,
        room: u64,
        sink: Sink<'_>,
    ) -> FsResult<u64> {
        let rec = self.object(base, path, nofollow, Hold::Shared)?;
        if !rec.is_virtual() {
            return Err(Errno::INVAL.into());
        }
        // It names files that its reader may not see otherwise.
        perm::check(&rec, self.session.cred(), R)?;
        spec_of(self.store, rec.ino)?;
        let found = self.store.xattr(rec.ino, SPEC_NAME)?.ok_or(Errno::NODATA)?;
        self.put_out(&found.value, room, sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Direct;
    use weldfs_ciscops::{Op, OpenFlags, PoolRange};
    use weldfs_journal::{ManualClock, Medium, RecordHead, SeededRandom};
    use weldfs_media::RamMedium;
    use weldfs_store::effect::{AttrDelta, Effects, attr};
    use weldfs_store::mount::{MkfsOptions, format};
    use weldfs_store::{MountOptions, Need};

    #[test]
    fn a_spec_that_no_device_wrote_is_damage_and_no_panic() {
        let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(16 << 20));
        let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(1)));
        format(&medium, &MkfsOptions::default(), &*clock, &*random).unwrap();
        let (store, _) = crate::mount(medium, MountOptions::new(clock, random)).unwrap();
        let mut device = Direct::new(store.clone(), 1 << 16);
        let path = device.put(0, b"f");
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        assert_eq!(device.run(Op::open(Handle::ROOT, path, flags, 0o644)).status, 0);
        let ino = store.dirent(ROOT, b"f").unwrap().unwrap().ino;
        let forge = |effects: Effects| {
            let need = Need { log_bytes: 8000, meta_keys: 10, ..Need::default() };
            let mut plan = store.begin(&need).unwrap();
            effects.into_iter().for_each(|e| plan.push(e));
            store.commit(&mut plan, RecordHead::op()).unwrap();
        };
        let flags = AttrDelta { mask: attr::FLAGS, flags: FLAG_VIRTUAL, ..AttrDelta::new(ino) };
        forge([Effect::SetAttr(flags)].into_iter().collect());
        assert!(matches!(spec_of(&store, ino), Err(FsError::Corrupt { .. })));
        let out = PoolRange::new(4096, 4096);
        let ask = Op::VirtSpec { base: Handle::ROOT, path, nofollow: false, out };
        assert_eq!(device.run(ask).status, Errno::IO.0);
        for bytes in [&b""[..], b"\x01", &[0xff; 4096], b"\x01\0\x04\0\xff\xff\xff\xffgrep"] {
            let slot = store.xattr_slot(ino, SPEC_NAME).unwrap();
            forge([Effect::PutXattr { ino, slot, name: SPEC_NAME.into(), value: bytes.into() }].into_iter().collect());
            assert!(matches!(spec_of(&store, ino), Err(FsError::Corrupt { .. })), "{bytes:?}");
            assert_eq!(device.run(ask).status, Errno::IO.0);
        }
    }
}
