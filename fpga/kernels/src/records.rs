//! Cuts a stream into records of one size, wherever the chunks are cut.

/// The part of a record that has come so far.
#[derive(Default)]
pub struct Records {
    size: usize,
    part: Vec<u8>,
}

impl Records {
    /// Records of `size` bytes, at least 1.
    pub fn new(size: usize) -> Records {
        Records { size, part: Vec::with_capacity(size) }
    }

    /// Calls `whole` with the records that are complete: each time one or more of them, back to back.
    pub fn feed(&mut self, mut input: &[u8], mut whole: impl FnMut(&[u8])) {
        if !self.part.is_empty() {
            let n = input.len().min(self.size - self.part.len());
            self.part.extend_from_slice(&input[..n]);
            input = &input[n..];
            if self.part.len() < self.size {
                return;
            }
            whole(&self.part);
            self.part.clear();
        }
        let (records, rest) = input.split_at(input.len() - input.len() % self.size.max(1));
        if !records.is_empty() {
            whole(records);
        }
        self.part.extend_from_slice(rest);
    }

    /// Bytes of a record.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The record that is not complete.
    pub fn part(&self) -> &[u8] {
        &self.part
    }

    /// The packet has ended: a trailing part of a record is dropped.
    pub fn end(&mut self) {
        self.part.clear();
    }
}
