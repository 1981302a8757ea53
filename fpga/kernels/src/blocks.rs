//! Blocks of one length, out of a stream that is cut anywhere.

/// What has come of the record that the last cut went through.
pub struct Blocks<const N: usize> {
    part: [u8; N],
    filled: usize,
}

impl<const N: usize> Default for Blocks<N> {
    fn default() -> Blocks<N> {
        Blocks { part: [0; N], filled: 0 }
    }
}

impl<const N: usize> Blocks<N> {
    /// Gives all whole records to `take`, in order, in one or two slices, and keeps the part that is left.
    pub fn each(&mut self, mut input: &[u8], mut take: impl FnMut(&[[u8; N]])) {
        if self.filled > 0 {
            let n = input.len().min(N - self.filled);
            self.part[self.filled..self.filled + n].copy_from_slice(&input[..n]);
            (self.filled, input) = (self.filled + n, &input[n..]);
            if self.filled < N {
                return;
            }
            self.filled = 0;
            take(&[self.part]);
        }
        let (records, part) = input.as_chunks::<N>();
        if !records.is_empty() {
            take(records);
        }
        self.part[..part.len()].copy_from_slice(part);
        self.filled = part.len();
    }

    /// Drops what has come of a record.
    pub fn clear(&mut self) {
        self.filled = 0;
    }
}
