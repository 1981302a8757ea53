//! Bytes of files: read, write, truncate, fallocate, seek, and the fused operations on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{At, BLOCK, Blk, Cred, FILE_BYTES_MAX, Falloc, Kind, Model, Modify, Name, PAYLOAD_BYTES_MAX, Reply, Res};

const B: usize = BLOCK as usize;

fn block_mut(blocks: &mut BTreeMap<u64, Blk>, at: u64) -> &mut [u8; B] {
    let slot = blocks.entry(at).or_insert(Blk::Unwritten);
    if matches!(slot, Blk::Unwritten) {
        *slot = Blk::Data(Arc::new([0; B]));
    }
    match slot {
        Blk::Data(bytes) => Arc::make_mut(bytes),
        Blk::Unwritten => unreachable!("made data above"),
    }
}

/// Zeroes `from..to`, a range inside one block, where there is data.
fn zero_part(blocks: &mut BTreeMap<u64, Blk>, from: u64, to: u64) {
    if from < to
        && let Some(Blk::Data(bytes)) = blocks.get_mut(&(from / BLOCK))
    {
        let start = (from % BLOCK) as usize;
        Arc::make_mut(bytes)[start..start + (to - from) as usize].fill(0);
    }
}

impl Model {
    fn file(&self, ino: u64) -> Res<(u64, &BTreeMap<u64, Blk>)> {
        match &self.node(ino).kind {
            Kind::File { size, blocks } => Ok((*size, blocks)),
            Kind::Dir { .. } => Err(libc::EISDIR),
            Kind::Symlink { .. } => Err(libc::EINVAL),
        }
    }

    fn file_mut(&mut self, ino: u64) -> (&mut u64, &mut BTreeMap<u64, Blk>) {
        match &mut self.node_mut(ino).kind {
            Kind::File { size, blocks } => (size, blocks),
            _ => unreachable!("callers checked that this is a regular file"),
        }
    }

    /// Marks content as changed: times, and the privilege bits when an ordinary user did it.
    fn modified(&mut self, cred: &Cred, ino: u64) {
        let now = self.now;
        let node = self.node_mut(ino);
        node.mtime = now;
        node.ctime = now;
        if cred.uid != 0 {
            node.perm &= !0o4000;
            if node.perm & 0o010 != 0 {
                node.perm &= !0o2000;
            }
        }
    }

    /// Bytes of a regular file, short at its end.
    pub(crate) fn bytes(&self, ino: u64, off: u64, len: u64) -> Res<Vec<u8>> {
        let (size, blocks) = self.file(ino)?;
        let end = size.min(off.saturating_add(len));
        let mut out = vec![0; end.saturating_sub(off) as usize];
        let mut pos = off;
        while pos < end {
            let (start, room) = ((pos % BLOCK) as usize, (BLOCK - pos % BLOCK).min(end - pos) as usize);
            if let Some(Blk::Data(bytes)) = blocks.get(&(pos / BLOCK)) {
                let to = (pos - off) as usize;
                out[to..to + room].copy_from_slice(&bytes[start..start + room]);
            }
            pos += room as u64;
        }
        Ok(out)
    }

    pub(crate) fn write_node(&mut self, cred: &Cred, ino: u64, off: u64, data: &[u8]) -> Res<()> {
        self.file(ino)?;
        if data.is_empty() {
            return Ok(());
        }
        let end = off.checked_add(data.len() as u64).ok_or(libc::EFBIG)?;
        if end > FILE_BYTES_MAX {
            return Err(libc::EFBIG);
        }
        let (size, blocks) = self.file_mut(ino);
        let mut pos = off;
        while pos < end {
            let (start, room) = ((pos % BLOCK) as usize, (BLOCK - pos % BLOCK).min(end - pos) as usize);
            let from = (pos - off) as usize;
            block_mut(blocks, pos / BLOCK)[start..start + room].copy_from_slice(&data[from..from + room]);
            pos += room as u64;
        }
        *size = end.max(*size);
        self.modified(cred, ino);
        Ok(())
    }

    pub(crate) fn resize(&mut self, cred: &Cred, ino: u64, to: u64) -> Res<()> {
        self.file(ino)?;
        if to > FILE_BYTES_MAX {
            return Err(libc::EFBIG);
        }
        let (size, blocks) = self.file_mut(ino);
        if to < *size {
            zero_part(blocks, to, to.next_multiple_of(BLOCK));
        }
        if to <= *size {
            blocks.split_off(&to.div_ceil(BLOCK));
        }
        *size = to;
        self.modified(cred, ino);
        Ok(())
    }

    fn position(&self, slot: u32, at: At) -> Res<u64> {
        let ofd = self.ofd(slot)?;
        match at {
            At::Offset(off) => Ok(off),
            At::Current => Ok(ofd.offset),
            At::End => Ok(self.file(ofd.ino)?.0),
        }
    }

    pub(crate) fn read_slot(&mut self, slot: u32, at: At, len: u64) -> Res<Reply> {
        let ofd = self.ofd(slot)?;
        if !ofd.read {
            return Err(libc::EBADF);
        }
        self.file(ofd.ino)?;
        let off = self.position(slot, at)?;
        let out = self.bytes(ofd.ino, off, len)?;
        if at == At::Current
            && let Some(o) = self.open.get_mut(&slot)
        {
            o.offset = off + out.len() as u64;
        }
        Ok(Reply::Bytes(out))
    }

    pub(crate) fn write_slot(&mut self, cred: &Cred, slot: u32, at: At, data: &[u8]) -> Res<Reply> {
        let ofd = self.ofd(slot)?;
        if !ofd.write {
            return Err(libc::EBADF);
        }
        let off = self.position(slot, if ofd.append { At::End } else { at })?;
        self.write_node(cred, ofd.ino, off, data)?;
        if at == At::Current
            && !data.is_empty()
            && let Some(o) = self.open.get_mut(&slot)
        {
            o.offset = off + data.len() as u64;
        }
        Ok(Reply::Wrote(off, data.len() as u64))
    }

    pub(crate) fn truncate_slot(&mut self, cred: &Cred, slot: u32, size: u64) -> Res<Reply> {
        let ofd = self.ofd(slot)?;
        if !ofd.write {
            return Err(libc::EBADF);
        }
        self.resize(cred, ofd.ino, size)?;
        Ok(Reply::Unit)
    }

    pub(crate) fn fallocate(&mut self, cred: &Cred, slot: u32, mode: Falloc, off: u64, len: u64) -> Res<Reply> {
        let ofd = self.ofd(slot)?;
        if !ofd.write {
            return Err(libc::EBADF);
        }
        self.file(ofd.ino)?;
        if len == 0 {
            return Err(libc::EINVAL);
        }
        let end = off.checked_add(len).filter(|e| *e <= FILE_BYTES_MAX).ok_or(libc::EFBIG)?;
        let (size, blocks) = self.file_mut(ofd.ino);
        if matches!(mode, Falloc::Punch | Falloc::Zero | Falloc::ZeroKeepSize) {
            let (first, last) = (off.div_ceil(BLOCK), end / BLOCK);
            if first > last {
                zero_part(blocks, off, end);
            } else {
                zero_part(blocks, off, first * BLOCK);
                zero_part(blocks, last * BLOCK, end);
                blocks.retain(|b, _| *b < first || *b >= last);
            }
        }
        if mode != Falloc::Punch {
            for b in off / BLOCK..end.div_ceil(BLOCK) {
                blocks.entry(b).or_insert(Blk::Unwritten);
            }
        }
        if matches!(mode, Falloc::Reserve | Falloc::Zero) {
            *size = end.max(*size);
        }
        self.modified(cred, ofd.ino);
        Ok(Reply::Unit)
    }

    pub(crate) fn seek(&mut self, slot: u32, whence: i32, off: i64) -> Res<Reply> {
        let ofd = self.ofd(slot)?;
        let none = BTreeMap::new();
        let (size, blocks) = match self.file(ofd.ino) {
            Err(libc::EISDIR) if whence < libc::SEEK_DATA => (0, &none),
            other => other?,
        };
        let to = match whence {
            libc::SEEK_SET => off,
            libc::SEEK_CUR => off.checked_add(ofd.offset as i64).ok_or(libc::EOVERFLOW)?,
            libc::SEEK_END => off.checked_add(size as i64).ok_or(libc::EOVERFLOW)?,
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                if off < 0 || off as u64 >= size {
                    return Err(libc::ENXIO);
                }
                let off = off as u64;
                let data = |b: &u64| matches!(blocks.get(b), Some(Blk::Data(_)));
                let first = off / BLOCK;
                let hit = if whence == libc::SEEK_DATA {
                    let hit = blocks.range(first..).find(|(_, k)| matches!(k, Blk::Data(_))).map(|(b, _)| *b);
                    hit.filter(|b| b * BLOCK < size).ok_or(libc::ENXIO)?
                } else {
                    let mut b = first;
                    while data(&b) {
                        b += 1;
                    }
                    b
                };
                off.max(hit * BLOCK).min(size) as i64
            }
            _ => return Err(libc::EINVAL),
        };
        if to < 0 {
            return Err(libc::EINVAL);
        }
        if let Some(o) = self.open.get_mut(&slot) {
            o.offset = to as u64;
        }
        Ok(Reply::Number(to as u64))
    }

    fn fused_position(&self, ino: u64, flags: i32, at: At) -> Res<u64> {
        match at {
            At::Offset(off) if flags & libc::O_APPEND == 0 => Ok(off),
            At::Current if flags & libc::O_APPEND == 0 => Ok(0),
            _ => Ok(self.file(ino)?.0),
        }
    }

    pub(crate) fn open_write_close(
        &mut self,
        cred: &Cred,
        name: &Name,
        flags: i32,
        mode: u32,
        at: At,
        data: &[u8],
    ) -> Res<Reply> {
        let ino = self.open_node(cred, name, flags & !libc::O_ACCMODE | libc::O_WRONLY, mode)?;
        self.micro_done();
        let off = self.fused_position(ino, flags, at)?;
        self.write_node(cred, ino, off, data)?;
        self.reap(ino);
        Ok(Reply::Wrote(off, data.len() as u64))
    }

    pub(crate) fn open_read_close(&mut self, cred: &Cred, name: &Name, flags: i32, off: u64, len: u64) -> Res<Reply> {
        let ino = self.open_node(cred, name, flags & !libc::O_ACCMODE, 0)?;
        Ok(Reply::Bytes(self.bytes(ino, off, len)?))
    }

    pub(crate) fn open_read_write_close(
        &mut self,
        cred: &Cred,
        name: &Name,
        (flags, mode): (i32, u32),
        (off, len): (u64, u64),
        at: At,
        data: &[u8],
    ) -> Res<Reply> {
        let ino = self.open_node(cred, name, flags & !libc::O_ACCMODE | libc::O_RDWR, mode)?;
        self.micro_done();
        let old = self.bytes(ino, off, len)?;
        let to = self.fused_position(ino, flags, at)?;
        self.write_node(cred, ino, to, data)?;
        self.reap(ino);
        Ok(Reply::ReadWrote(old, to, data.len() as u64))
    }

    pub(crate) fn append_checksum_write(&mut self, cred: &Cred, slot: u32, data: &[u8]) -> Res<Reply> {
        let ofd = self.ofd(slot)?;
        if !ofd.write {
            return Err(libc::EBADF);
        }
        if data.len() as u64 + 4 > PAYLOAD_BYTES_MAX {
            return Err(libc::E2BIG);
        }
        let off = self.position(slot, At::End)?;
        self.write_node(cred, ofd.ino, off, data)?;
        self.micro_done();
        self.write_node(cred, ofd.ino, off + data.len() as u64, &crc32c(data).to_le_bytes())?;
        Ok(Reply::Wrote(off, data.len() as u64 + 4))
    }

    pub(crate) fn read_checksum_verify(&self, slot: u32, off: u64, len: u64) -> Res<Reply> {
        let ofd = self.ofd(slot)?;
        if !ofd.read {
            return Err(libc::EBADF);
        }
        let all = self.bytes(ofd.ino, off, len + 4)?;
        let data = all.get(..len as usize).filter(|_| all.len() as u64 == len + 4).ok_or(libc::ENODATA)?;
        if all[len as usize..] != crc32c(data).to_le_bytes() {
            return Err(libc::EBADMSG);
        }
        Ok(Reply::Bytes(data.to_vec()))
    }

    pub(crate) fn read_modify_write(
        &mut self,
        cred: &Cred,
        slot: u32,
        off: u64,
        len: u64,
        modify: &Modify,
    ) -> Res<Reply> {
        let ofd = self.ofd(slot)?;
        if !ofd.read || !ofd.write {
            return Err(libc::EBADF);
        }
        let old = self.bytes(ofd.ino, off, len)?;
        let mut new = old.clone();
        new.resize(len as usize, 0);
        match modify {
            Modify::Patch(bytes) => new = bytes.clone(),
            Modify::Add(n) => {
                let mut wide = [0u8; 8];
                wide[..new.len()].copy_from_slice(&new);
                let sum = u64::from_le_bytes(wide).wrapping_add(*n).to_le_bytes();
                new.copy_from_slice(&sum[..len as usize]);
            }
            Modify::Xor(bytes) => new.iter_mut().zip(bytes).for_each(|(a, b)| *a ^= b),
            Modify::CompareSwap { expect, new: swap } => {
                if new == *expect {
                    new = swap.clone();
                } else {
                    return Err(libc::ECANCELED);
                }
            }
        }
        self.write_node(cred, ofd.ino, off, &new)?;
        Ok(Reply::Bytes(old))
    }
}

/// CRC32C, bit by bit: slow and independent of the real one.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, b| {
        (0..8).fold(crc ^ u32::from(*b), |c, _| (c >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(c & 1)))
    })
}
