//! Fields changed in place, records that grow, new versions appended to logs.

use super::run::Operand;
use super::sums::{fill, length, owned};
use super::{Order, ReadFrom};
use crate::buf::{Payload, Room};
use crate::raw::{Raw, Written};
use weldfs_ciscops::catalogue::{AppendAndSync, AppendToRecord, FieldChange, ModifyAppend, ModifyField, ReadAppend};
use weldfs_ciscops::{At, Cqe, Durability, Errno, Handle};

/// How a field is changed. Its length is that of the bytes.
#[derive(Debug, Clone, Copy)]
pub enum FieldEdit<'a> {
    /// Replaced.
    Patch(&'a [u8]),
    /// An integer of `width` bytes (1, 2, 4 or 8) is added to, wrapping.
    Add {
        /// What to add.
        by: u64,
        /// Bytes of the field.
        width: u32,
        /// Which byte of it comes first.
        order: Order,
    },
    /// Bitwise and.
    And(&'a [u8]),
    /// Bitwise or.
    Or(&'a [u8]),
    /// Bitwise exclusive or.
    Xor(&'a [u8]),
    /// Replaced by `new` if it holds `expect`, of the same length, else ECANCELED.
    CompareSwap {
        /// What it must hold.
        expect: &'a [u8],
        /// What it shall hold.
        new: &'a [u8],
    },
}

impl<'a> FieldEdit<'a> {
    /// Bytes of the field, the change, its operands.
    fn parts(self) -> Result<(u32, FieldChange, Vec<Operand<'a>>), Errno> {
        let one = |change, bytes: &'a [u8]| Ok((length(&bytes.into())?, change, vec![Operand::In(bytes.into())]));
        match self {
            FieldEdit::Patch(bytes) => one(FieldChange::Patch, bytes),
            FieldEdit::And(bytes) => one(FieldChange::And, bytes),
            FieldEdit::Or(bytes) => one(FieldChange::Or, bytes),
            FieldEdit::Xor(bytes) => one(FieldChange::Xor, bytes),
            FieldEdit::Add { by, width, order } => Ok((width, FieldChange::Add(order, by), Vec::new())),
            FieldEdit::CompareSwap { expect, new } => {
                if expect.len() != new.len() {
                    return Err(Errno::INVAL);
                }
                let operands = vec![Operand::In(expect.into()), Operand::In(new.into())];
                Ok((length(&new.into())?, FieldChange::CompareSwap, operands))
            }
        }
    }

    /// The same on the caller's processor.
    fn apply(self, field: &mut [u8]) -> Result<(), Errno> {
        let each = |field: &mut [u8], bytes: &[u8], f: fn(u8, u8) -> u8| {
            field.iter_mut().zip(bytes).for_each(|(a, b)| *a = f(*a, *b));
        };
        match self {
            FieldEdit::Patch(bytes) => field.copy_from_slice(bytes),
            FieldEdit::And(bytes) => each(field, bytes, |a, b| a & b),
            FieldEdit::Or(bytes) => each(field, bytes, |a, b| a | b),
            FieldEdit::Xor(bytes) => each(field, bytes, |a, b| a ^ b),
            FieldEdit::Add { by, width, order } => {
                let int = super::int(order, width)?;
                let sum = int.get(field).wrapping_add(by);
                field.copy_from_slice(&int.put(sum)[..field.len()]);
            }
            FieldEdit::CompareSwap { expect, .. } if expect != field => return Err(Errno::CANCELED),
            FieldEdit::CompareSwap { new, .. } => field.copy_from_slice(new),
        }
        Ok(())
    }
}

impl Raw<'_> {
    /// Reads a field, changes it, writes it back; bytes past the end of the file count as zeros. Returns the bytes
    /// that were there. With `old` (of the field's length) they come back, also when a compare-and-swap finds others
    /// (ECANCELED). E2BIG above 1 MiB, EINVAL for an integer of another width. On the host: a read and a write, others
    /// may come in between.
    pub fn modify_field(
        &self,
        h: Handle,
        offset: u64,
        edit: FieldEdit<'_>,
        old: Option<&mut [u8]>,
    ) -> Result<usize, Errno> {
        let (len, change, mut operands) = edit.parts()?;
        if old.as_ref().is_some_and(|old| old.len() != len as usize) {
            return Err(Errno::INVAL);
        }
        if self.changes_on_host()? {
            let mut field = vec![0; len as usize];
            let n = self.read(h, At::Offset(offset), &mut field)?;
            if let Some(old) = old {
                old.copy_from_slice(&field);
            }
            edit.apply(&mut field)?;
            self.write(h, At::Offset(offset), &field)?;
            return Ok(n);
        }
        let template = ModifyField { h, offset, len, change, show: old.is_some() };
        operands.extend(old.map(|old| Operand::Out(Room::Bytes(old))));
        let shown = |cqe: &Cqe| if cqe.status == 0 || cqe.status == Errno::CANCELED.0 { len as usize } else { 0 };
        let (n, _) = self.template(&template, &mut operands, shown)?.ok()?;
        Ok(n as usize)
    }

    /// Adds to an integer of `width` bytes in the file and returns what it held before. Errors as of
    /// [`Raw::modify_field`].
    pub fn fetch_add(&self, h: Handle, offset: u64, by: u64, width: u32, order: Order) -> Result<u64, Errno> {
        if self.changes_on_host()? {
            let int = super::int(order, width)?;
            let mut old = vec![0; width as usize];
            self.modify_field(h, offset, FieldEdit::Add { by, width, order }, Some(&mut old))?;
            return Ok(int.get(&old));
        }
        let change = FieldChange::Add(order, by);
        let template = ModifyField { h, offset, len: width, change, show: false };
        let (_, before) = self.fused(&template, &mut [])?;
        Ok(before)
    }

    /// Appends to a record in place: the length of its content lies at `offset` in `width` bytes, the content right
    /// behind, and there is room for `room` bytes of it. Returns the length before. EFBIG when it does not fit
    /// (nothing is written), EINVAL when `width` cannot say `room`.
    pub fn append_to_record<'p>(
        &self,
        h: Handle,
        offset: u64,
        (width, order): (u32, Order),
        room: u64,
        data: impl Into<Payload<'p>>,
    ) -> Result<u64, Errno> {
        let data = data.into();
        let template = AppendToRecord { h, offset, width, order, room, len: length(&data)? };
        if self.changes_on_host()? {
            weldfs_ciscops::catalogue::Template::body(&template)?;
            let int = super::int(order, width)?;
            let mut stored = vec![0; width as usize];
            self.read(h, At::Offset(offset), &mut stored)?;
            let before = int.get(&stored);
            if before > room - u64::from(template.len) {
                return Err(Errno::FBIG);
            }
            self.write(h, At::Offset(offset + u64::from(width) + before), data)?;
            let after = int.put(before + u64::from(template.len));
            self.write(h, At::Offset(offset), &after[..width as usize])?;
            return Ok(before);
        }
        let (before, _) = self.fused(&template, &mut [Operand::In(data)])?;
        Ok(before)
    }

    /// Reads the record of `len` bytes at `offset` of `h`, changes the field at byte `field` of the copy, and appends
    /// the copy to `to`; the old record stays. Returns where the new one begins. ENODATA when the file ends within the
    /// record, ERANGE when the field is not inside it, ECANCELED when a compare-and-swap finds something else.
    pub fn modify_append(
        &self,
        h: Handle,
        (offset, len): (u64, u32),
        field: u32,
        edit: FieldEdit<'_>,
        to: Handle,
    ) -> Result<u64, Errno> {
        let (field_len, change, mut operands) = edit.parts()?;
        let template = ModifyAppend { h, to, offset, len, field, field_len, change };
        if self.changes_on_host()? {
            weldfs_ciscops::catalogue::Template::body(&template)?;
            let mut record = vec![0; len as usize];
            if self.read(h, At::Offset(offset), &mut record)? < record.len() {
                return Err(Errno::NODATA);
            }
            let end = field as usize + field_len as usize;
            edit.apply(record.get_mut(field as usize..end).ok_or(Errno::RANGE)?)?;
            return Ok(self.write(to, At::End, &record)?.offset);
        }
        let (at, _) = self.fused(&template, &mut operands)?;
        Ok(at)
    }

    /// Reads bytes of a file as it is (those from an offset, or its last ones), then appends the payload. Returns the
    /// bytes read and where the payload went. There is nothing to compute: on the host it is a read and a write, with
    /// others in between.
    pub fn read_append<'p>(
        &self,
        h: Handle,
        from: ReadFrom,
        room: &mut [u8],
        data: impl Into<Payload<'p>>,
    ) -> Result<(usize, Written), Errno> {
        let data = data.into();
        let len = data.len();
        if self.computes_on_host() {
            let data = owned(&data)?;
            let off = match from {
                ReadFrom::Offset(off) => off,
                ReadFrom::Tail => self.stat(h)?.size.saturating_sub(room.len() as u64),
            };
            let mut read = vec![0; room.len()];
            let n = self.read(h, At::Offset(off), &mut read)?;
            fill(Room::Bytes(room), &read[..n])?;
            return Ok((n, self.write(h, At::End, &data)?));
        }
        let read = u32::try_from(room.len()).map_err(|_| Errno::TOOBIG)?;
        let template = ReadAppend { h, from, read, len: length(&data)? };
        let mut operands = [Operand::In(data), Operand::Out(Room::Bytes(room))];
        let (n, offset) = self.fused(&template, &mut operands)?;
        Ok((n as usize, Written { len, offset }))
    }

    /// Appends a payload durably, whatever the view's durability: a write and an fdatasync in one. Returns where it
    /// went.
    pub fn append_and_sync<'p>(&self, h: Handle, data: impl Into<Payload<'p>>) -> Result<Written, Errno> {
        let data = data.into();
        let len = data.len();
        if self.computes_on_host() {
            return self.durability(Durability::Durable).write(h, At::End, data);
        }
        let template = AppendAndSync { h, len: length(&data)? };
        let offset = self.fused(&template, &mut [Operand::In(data)])?;
        Ok(Written { len, offset })
    }
}
