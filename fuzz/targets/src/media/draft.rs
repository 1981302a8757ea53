//! A base image with structures changed as an input says, and everything that covers them put right: lengths and
//! offsets in leaves, keys and references in the pages above, records one after the other, every checksum. So what is
//! wrong with it can be noticed by what it means only.
//!
//! Each edit is a byte that says which, then its operands (`Edit`).

use super::base::*;
use crate::cursor::Cursor;
use std::collections::{BTreeMap, BTreeSet};
use weldfs_media::CowImage;

/// Edits applied of one input.
const EDITS_MAX: u8 = 24;
/// Kinds of edits.
const EDITS: u8 = 14;

/// See the module.
struct Draft<'b> {
    base: &'b Base,
    image: CowImage,
    sb: [u8; BLOCK],
    leaves: BTreeMap<usize, Leaf>,
    records: Option<Vec<Record>>,
    /// Raw bytes put over everything else: place in the image and bytes.
    pokes: Vec<(u64, Vec<u8>)>,
    /// Bytes of records: which, where from its header on.
    log_pokes: Vec<(usize, usize, Vec<u8>)>,
    sum_data: bool,
    seen: BTreeSet<u64>,
    log: bool,
}

/// The image that an input describes, and whether its log, or what says where that is, may differ from the base's.
/// What is left of the input stays.
pub fn draft(data: &mut Cursor<'_>) -> (&'static Base, CowImage, bool) {
    let bases = bases();
    let base = &bases[usize::from(data.u8()) % bases.len()];
    let mut draft = Draft {
        base,
        image: base.image.clone(),
        sb: base.sb,
        leaves: BTreeMap::new(),
        records: None,
        pokes: Vec::new(),
        log_pokes: Vec::new(),
        sum_data: false,
        seen: BTreeSet::new(),
        log: false,
    };
    for _ in 0..data.u8().min(EDITS_MAX) {
        draft.edit(data);
    }
    let log = draft.log;
    (base, draft.finish(), log)
}

impl Draft<'_> {
    fn edit(&mut self, data: &mut Cursor<'_>) {
        let what = data.u8() % EDITS;
        self.log |= matches!(what, 0 | 6..=12);
        match what {
            0 => poke(&mut self.sb[..], data.u16().into(), data.short()),
            1 => self.poke_page(data),
            2 => self.entry(data, |entry, data| poke(&mut entry.1, data.u16().into(), data.short())),
            3 => self.entry(data, |entry, data| entry.1 = data.long().to_vec()),
            4 => self.put(data),
            5 => self.remove(data),
            6 => {
                let (record, at) = (data.u8().into(), usize::from(data.u8()) % RECORD_HEADER);
                self.log_pokes.push((record, at, data.short().to_vec()));
            }
            7 => self.record(data, |records, i, data| {
                poke(&mut records[i].payload, data.u16().into(), data.short());
            }),
            8 => self.append(data),
            9 => self.record(data, |records, i, data| records[i].payload = data.long().to_vec()),
            10 => self.record(data, |records, i, _| drop(records.remove(i))),
            11 => self.record(data, |records, i, data| {
                let copy = records[i].clone();
                let to = usize::from(data.u8()) % (records.len() + 1);
                records.insert(to, copy);
            }),
            12 => {
                let at = u64::from(data.u16()) * BLOCK as u64 + u64::from(data.u16()) % BLOCK as u64;
                self.pokes.push((at, data.short().to_vec()));
            }
            _ => self.sum_data = true,
        }
    }

    fn poke_page(&mut self, data: &mut Cursor<'_>) {
        let page = self.base.pages[usize::from(data.u8()) % self.base.pages.len()];
        let at = u64::from(data.u16()) % PAGE as u64;
        self.pokes.push((page * BLOCK as u64 + at, data.short().to_vec()));
    }

    /// The leaf that holds entry `i` of all, and which of its entries that is.
    fn find(&self, i: usize) -> Option<(usize, usize)> {
        let count = |l: usize| self.leaf(l).entries.len();
        let total: usize = (0..self.base.leaves.len()).map(count).sum();
        let mut i = i % total.max(1);
        for l in 0..self.base.leaves.len() {
            if i < count(l) {
                return Some((l, i));
            }
            i -= count(l);
        }
        None
    }

    fn leaf(&self, l: usize) -> &Leaf {
        self.leaves.get(&l).unwrap_or(&self.base.leaves[l])
    }

    fn leaf_mut(&mut self, l: usize) -> &mut Leaf {
        self.leaves.entry(l).or_insert_with(|| self.base.leaves[l].clone())
    }

    fn entry(&mut self, data: &mut Cursor<'_>, change: impl Fn(&mut ([u8; KEY], Vec<u8>), &mut Cursor<'_>)) {
        if let Some((l, i)) = self.find(data.u16().into()) {
            change(&mut self.leaf_mut(l).entries[i], data);
        }
    }

    fn remove(&mut self, data: &mut Cursor<'_>) {
        if let Some((l, i)) = self.find(data.u16().into()) {
            let leaf = self.leaf_mut(l);
            if leaf.entries.len() > 1 {
                leaf.entries.remove(i);
            }
        }
    }

    /// A key of small or any numbers, and its value.
    fn put(&mut self, data: &mut Cursor<'_>) {
        let kind = data.u8();
        let mut key = [0; KEY];
        key[0] = kind & 15;
        let mut word = |large: bool| if large { data.u64() } else { u64::from(data.u8()) };
        let (a, b) = (word(kind & 16 != 0), word(kind & 32 != 0));
        key[1..9].copy_from_slice(&a.to_be_bytes());
        key[9..].copy_from_slice(&b.to_be_bytes());
        let value = data.long().to_vec();
        let starts_above = |l: &usize| self.leaf(*l).entries.first().is_some_and(|e| e.0 > key);
        let l = (0..self.base.leaves.len()).find(starts_above).map_or(self.base.leaves.len(), |l| l);
        let leaf = self.leaf_mut(l.saturating_sub(1));
        match leaf.entries.binary_search_by(|e| e.0.cmp(&key)) {
            Ok(i) => leaf.entries[i].1 = value,
            Err(i) => leaf.entries.insert(i, (key, value)),
        }
    }

    fn record(&mut self, data: &mut Cursor<'_>, change: impl Fn(&mut Vec<Record>, usize, &mut Cursor<'_>)) {
        let i = usize::from(data.u8());
        let records = self.records.get_or_insert_with(|| self.base.records.clone());
        if !records.is_empty() {
            let i = i % records.len();
            change(records, i, data);
        }
    }

    fn append(&mut self, data: &mut Cursor<'_>) {
        let mut header = [0; RECORD_HEADER];
        header[24] = data.u8();
        header[25] = data.u8();
        header[26..28].copy_from_slice(&u16::from(data.u8()).to_le_bytes());
        header[32..34].copy_from_slice(&data.array::<2>());
        let payload = data.long().to_vec();
        let records = self.records.get_or_insert_with(|| self.base.records.clone());
        records.push(Record { header, payload });
    }

    fn finish(mut self) -> CowImage {
        let layout = Layout::of(&self.base.sb);
        let rebuilt: Vec<Leaf> = std::mem::take(&mut self.leaves).into_values().collect();
        let mut firsts = BTreeMap::new();
        for leaf in &rebuilt {
            if self.write_leaf(leaf) {
                firsts.insert(leaf.addr, leaf.entries[0].0);
            }
        }
        if !self.log_pokes.is_empty() {
            self.records.get_or_insert_with(|| self.base.records.clone());
        }
        if let Some(records) = self.records.take() {
            self.write_log(&layout, &records);
        }
        for (at, bytes) in std::mem::take(&mut self.pokes) {
            self.write(at, &bytes);
        }
        let named = Layout::of(&self.sb);
        for (at, page) in [(712 + 16, named.root), (736 + 16, named.zone)] {
            if let Some(crc) = self.fix(page, &firsts) {
                self.sb[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            }
        }
        self.write_superblock(&layout);
        self.image
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let room = self.image.len().saturating_sub(at).min(bytes.len() as u64);
        self.image.write(at.min(self.image.len()), &bytes[..room as usize]);
    }

    /// Lays a leaf out anew; false where its entries do not fit, and it stays as it was.
    fn write_leaf(&mut self, leaf: &Leaf) -> bool {
        let mut page = vec![0; PAGE];
        self.image.read(leaf.addr * BLOCK as u64, &mut page);
        page[PAGE_HEADER..].fill(0);
        let mut top = PAGE;
        for (i, (key, value)) in leaf.entries.iter().enumerate() {
            let slot = PAGE_HEADER + i * SLOT;
            if slot + SLOT + value.len() > top {
                return false;
            }
            top -= value.len();
            page[top..top + value.len()].copy_from_slice(value);
            page[slot..slot + KEY].copy_from_slice(key);
            page[slot + KEY..slot + KEY + 2].copy_from_slice(&(top as u16).to_le_bytes());
            page[slot + KEY + 2..slot + SLOT].copy_from_slice(&(value.len() as u16).to_le_bytes());
        }
        page[6..8].copy_from_slice(&(leaf.entries.len() as u16).to_le_bytes());
        page[40..44].copy_from_slice(&(top as u32).to_le_bytes());
        self.image.write(leaf.addr * BLOCK as u64, &page);
        true
    }

    fn write_log(&mut self, layout: &Layout, records: &[Record]) {
        let mut used = vec![0; (self.base.log_end - layout.cut) as usize];
        let place = |lsn: u64| layout.log_start + lsn % layout.log_len;
        // (No base goes round the log.)
        self.image.write(place(layout.cut), &used);
        used.clear();
        for (i, record) in records.iter().enumerate() {
            let lsn = layout.cut + used.len() as u64;
            let mut bytes = [&record.header[..], &record.payload].concat();
            bytes[0..8].copy_from_slice(&salt(&self.base.sb, lsn).to_le_bytes());
            bytes[12..16].copy_from_slice(&(record.payload.len() as u32).to_le_bytes());
            bytes[16..24].copy_from_slice(&lsn.to_le_bytes());
            let watermark = number(&record.header, 40, 8).min(lsn);
            bytes[40..48].copy_from_slice(&watermark.to_le_bytes());
            for (which, at, change) in &self.log_pokes {
                if which % records.len() == i {
                    poke(&mut bytes, *at, change);
                }
            }
            let header: [u8; RECORD_HEADER] = bytes[..RECORD_HEADER].try_into().expect("as long as a header");
            let crc = record_crc(&header, &bytes[RECORD_HEADER..]);
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            bytes.resize(bytes.len().next_multiple_of(layout.align as usize), 0);
            used.extend(bytes);
            if layout.cut % layout.log_len + used.len() as u64 > layout.log_len {
                return;
            }
        }
        self.image.write(place(layout.cut), &used);
    }

    /// Puts the checksums right that a page holds of those below it, and gives its own.
    fn fix(&mut self, addr: u64, firsts: &BTreeMap<u64, [u8; KEY]>) -> Option<u32> {
        let fits = addr != 0 && addr.checked_add(4).is_some_and(|end| end <= self.image.len() / BLOCK as u64);
        if !fits || self.seen.len() > PAGES_MAX {
            return None;
        }
        let mut page = vec![0; PAGE];
        self.image.read(addr * BLOCK as u64, &mut page);
        if self.seen.insert(addr) {
            let count = (number(&page, 6, 2) as usize).min((PAGE - PAGE_HEADER) / BRANCH);
            match page[4] {
                1 if self.sum_data => self.sum_windows(&mut page),
                2 => (0..count).for_each(|i| self.fix_reference(&mut page, PAGE_HEADER + i * BRANCH, firsts)),
                3 => {
                    let next = number(&page, PAGE_HEADER, 8);
                    if let Some(crc) = self.fix(next, firsts) {
                        page[PAGE_HEADER + 16..PAGE_HEADER + 20].copy_from_slice(&crc.to_le_bytes());
                    }
                }
                _ => {}
            }
            self.image.write(addr * BLOCK as u64, &page);
        }
        Some(weldfs_functions::crc32c(&page))
    }

    fn fix_reference(&mut self, page: &mut [u8], at: usize, firsts: &BTreeMap<u64, [u8; KEY]>) {
        let child = number(page, at + KEY, 8);
        if let Some(first) = firsts.get(&child) {
            page[at..at + KEY].copy_from_slice(first);
        }
        if let Some(crc) = self.fix(child, firsts) {
            page[at + KEY + 16..at + KEY + 20].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Makes the checksums in the windows of a leaf those of the blocks they name.
    fn sum_windows(&self, page: &mut [u8]) {
        let count = (number(page, 6, 2) as usize).min((PAGE - PAGE_HEADER) / SLOT);
        for slot in (0..count).map(|i| PAGE_HEADER + i * SLOT) {
            let (at, len) = (number(page, slot + KEY, 2) as usize, number(page, slot + KEY + 2, 2) as usize);
            if page[slot] == 3 && at + len <= PAGE && len > 0 {
                self.sum_window(&mut page[at..at + len]);
            }
        }
    }

    fn sum_window(&self, value: &mut [u8]) {
        let mut at = 1;
        while at + 20 <= value.len() {
            let (blocks, written, addr) =
                (usize::from(value[at + 1]) + 1, value[at + 2] != 2, number(value, at + 4, 8));
            at += 20;
            for i in (0..blocks).take_while(|_| written) {
                let (place, sum) = (addr.wrapping_add(i as u64), at + 4 * i);
                if place >= self.image.len() / BLOCK as u64 || sum + 4 > value.len() {
                    return;
                }
                let mut block = [0; BLOCK];
                self.image.read(place * BLOCK as u64, &mut block);
                value[sum..sum + 4].copy_from_slice(&weldfs_functions::crc32c(&block).to_le_bytes());
            }
            at += if written { 4 * blocks } else { 0 };
        }
    }

    fn write_superblock(&mut self, layout: &Layout) {
        for block in [0, 8, layout.blocks - 1] {
            let mut copy = self.sb;
            copy[152..160].copy_from_slice(&block.to_le_bytes());
            let crc = weldfs_functions::crc32c(&copy[..BLOCK - 4]);
            copy[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
            self.image.write(block * BLOCK as u64, &copy);
        }
    }
}

/// Puts bytes at a place, as far as there is room.
fn poke(into: &mut [u8], at: usize, bytes: &[u8]) {
    if into.is_empty() {
        return;
    }
    let at = at % into.len();
    let n = bytes.len().min(into.len() - at);
    into[at..at + n].copy_from_slice(&bytes[..n]);
}
