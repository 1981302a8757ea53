//! A stream through a kernel: what it has of a slot, what is on its way in, what was given last. `virt` moves it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use weldfs_ciscops::limits::VIRT_AGAIN_MAX;
use weldfs_ciscops::{ChecksumState, Direction, Errno, VirtSpec};
use weldfs_fpga::config::WhenFull;
use weldfs_fpga::kernel::Fault;
use weldfs_fpga::lend::Rest;
use weldfs_fpga::session::Session;
use weldfs_fpga::status::Usage;

use weldfs_fs::SLICE_BYTES;
use weldfs_session::tenants::{Resource, Tenant};

/// Bytes that are pushed at a time, and read of a real file under one ticket.
pub(super) const PIECE_BYTES: u64 = 4 * SLICE_BYTES;
/// A stream that no one reads for so long gives its slot to who waits for one. It can begin anew.
const IDLE_READ: Duration = Duration::from_millis(100);
/// A stream that no one writes to for so long gives its slot to who waits for one. That is its end.
const IDLE_WRITE: Duration = Duration::from_secs(2);
/// A stream that is read has its slot for so long before another tenant of the same weight may have it.
const TURN: Duration = Duration::from_secs(1);
/// Output pulled at a time that was given before, bytes.
const SKIP_BYTES: u64 = 1 << 20;

/// Input on its way into the kernel.
pub(super) type Pushing = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// A stream. Whoever changes it has the description's turn.
pub(super) struct Stream {
    pub kernel: String,
    pub params: Vec<u32>,
    pub when_full: WhenFull,
    /// It is written: it cannot begin anew.
    pub keeps: bool,
    pub session: Option<Arc<Session>>,
    /// The memory of its FIFOs.
    pub held: Option<Fifos>,
    pub pushing: Option<Pushing>,
    /// Why the last of it was not taken.
    pub refused: Option<Errno>,
    /// Slot time that has been charged.
    pub charged: Usage,
    /// Bytes given to the reader, or taken from the writer, since the stream began.
    position: u64,
    /// The last of those given.
    again: Vec<u8>,
    /// CRC-32C of all bytes given.
    sum: u32,
    /// Of a stream that was begun anew: bytes to come that were given before, and the CRC-32C of those that came.
    skip: u64,
    skip_sum: u32,
    /// Input that it had taken when its slot went to others, bytes.
    replayed: u64,
    /// The input has ended; all of the output has been pulled.
    pub ended: bool,
    pub drained: bool,
    /// Why it cannot be gone on with.
    pub failed: Option<Errno>,
    /// The next input: which part, and where in the real file.
    pub part: usize,
    pub at: u64,
    /// Of a stream that is written: bytes that have got to the real file, and those that have not.
    pub wrote: u64,
    pub made: Vec<u8>,
}

impl Stream {
    /// At the beginning, without a slot.
    pub fn new(spec: &VirtSpec, nonblock: bool) -> Stream {
        Stream {
            kernel: spec.kernel.clone(),
            params: spec.params.clone(),
            when_full: if nonblock { WhenFull::Busy } else { WhenFull::Wait },
            keeps: spec.direction != Direction::Read,
            session: None,
            held: None,
            pushing: None,
            refused: None,
            charged: Usage::default(),
            position: 0,
            again: Vec::new(),
            sum: 0,
            skip: 0,
            skip_sum: 0,
            replayed: 0,
            ended: false,
            drained: false,
            failed: None,
            part: 0,
            at: 0,
            wrote: 0,
            made: Vec::new(),
        }
    }

    /// Parameters for the next stream. EBUSY while one is under way.
    pub fn set_params(&mut self, params: Vec<u32>) -> Result<(), Errno> {
        if self.session.is_some() || self.position > 0 && !self.ended {
            return Err(Errno::BUSY);
        }
        self.params = params;
        Ok(())
    }

    /// Back to the beginning: the slot is given back.
    pub fn rewind(&mut self) {
        self.release_slot();
        (self.position, self.part, self.at) = (0, 0, 0);
        (self.ended, self.drained, self.failed) = (false, false, None);
        (self.sum, self.skip, self.skip_sum, self.replayed) = (0, 0, 0, 0);
        self.again.clear();
    }

    /// No command works on it for now: its slot may go to others.
    pub fn rest(&self, idle: Duration, turn: Option<Duration>) {
        if let Some(session) = &self.session {
            session.rest(Rest { idle, turn });
        }
    }

    /// As [`Stream::rest`], of one that is read.
    pub fn rest_from_reading(&self) {
        // What it had to do again is done again, and as much on top: so that taking turns does not keep it from its
        // end.
        let worth = self.skip == 0 && self.charged.bytes_in >= 2 * self.replayed;
        self.rest(IDLE_READ, worth.then_some(TURN));
    }

    /// As [`Stream::rest`], of one that is written.
    pub fn rest_from_writing(&self) {
        self.rest(IDLE_WRITE, None);
    }

    /// Begins anew, to go on where it was: what was given before is made again, and passed over.
    pub fn replay(&mut self) {
        self.replayed = self.charged.bytes_in;
        self.release();
        (self.part, self.at) = (0, 0);
        (self.skip, self.skip_sum) = (self.position, 0);
    }

    /// At most so many bytes are of use now.
    pub fn wants(&self, room: usize) -> usize {
        if self.skip > 0 { self.skip.min(SKIP_BYTES) as usize } else { room }
    }

    /// What of the kernel's output the reader has not got yet.
    ///
    /// # Errors
    /// ESTALE: what was given before is not what the kernel makes now.
    pub fn fresh<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Errno> {
        if self.skip == 0 {
            return Ok(bytes);
        }
        let (old, new) = bytes.split_at(self.skip.min(bytes.len() as u64) as usize);
        self.skip_sum = append(self.skip_sum, old);
        self.skip -= old.len() as u64;
        let short = self.skip > 0 && self.drained;
        let other = self.skip == 0 && self.skip_sum != self.sum;
        if short || other { Err(Errno::STALE) } else { Ok(new) }
    }

    /// The slot is given back, and a later packet begins anew.
    pub fn release(&mut self) {
        self.release_slot();
        (self.ended, self.drained) = (false, false);
    }

    /// The slot is given back; what was given last can be read again.
    pub fn release_slot(&mut self) {
        (self.session, self.held, self.pushing, self.refused) = (None, None, None, None);
    }

    /// Whether a packet has begun.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Bytes given or taken so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether reading can go on at this offset.
    pub fn can_give(&self, at: u64) -> bool {
        at == 0 || at <= self.position && self.position - at <= self.again.len() as u64
    }

    /// Bytes that were given before, from this offset on.
    pub fn given(&self, at: u64) -> &[u8] {
        let back = self.position.checked_sub(at).filter(|n| *n <= self.again.len() as u64);
        back.map_or(&[], |n| &self.again[self.again.len() - n as usize..])
    }

    /// The reader has got these.
    pub fn give(&mut self, bytes: &[u8]) {
        self.position += bytes.len() as u64;
        self.sum = append(self.sum, bytes);
        let keep = &bytes[bytes.len().saturating_sub(VIRT_AGAIN_MAX)..];
        let old = (self.again.len() + keep.len()).saturating_sub(VIRT_AGAIN_MAX);
        self.again.drain(..old);
        self.again.extend_from_slice(keep);
    }

    /// The writer has handed over so many.
    pub fn took(&mut self, bytes: u64) {
        self.position += bytes;
    }

    /// Whether input is on its way: no more can be pushed.
    pub fn is_pushing(&self) -> bool {
        self.pushing.is_some()
    }

    /// Why the kernel took nothing of what was pushed last, if that is so.
    pub fn refused(&self) -> Result<(), Errno> {
        self.refused.map_or(Ok(()), Err)
    }
}

/// CRC-32C of what `sum` is of, and `bytes` behind it.
fn append(sum: u32, bytes: &[u8]) -> u32 {
    let mut state = ChecksumState::resume(sum, 0);
    state.update(bytes);
    state.value()
}

/// Memory of a kernel's two FIFOs, of a piece on its way, and of what can be read again. It is not waited for: whoever
/// would wait for it may have a slot that those wait for who have the memory.
pub(super) struct Fifos {
    tenant: Arc<Tenant>,
    bytes: u64,
}

impl Fifos {
    /// Those of a session, with FIFOs of so many bytes as are to be expected. ENOMEM.
    pub fn take(tenant: &Arc<Tenant>, fifo: usize) -> Result<Fifos, Errno> {
        let mut none = Fifos { tenant: tenant.clone(), bytes: 0 };
        none.fit(fifo)?;
        Ok(none)
    }

    /// Those of FIFOs of so many bytes: what a session has may be more or less than what was to be expected, where
    /// credits have changed meanwhile.
    pub fn fit(&mut self, fifo: usize) -> Result<(), Errno> {
        let bytes = 2 * fifo as u64 + PIECE_BYTES + VIRT_AGAIN_MAX as u64;
        if bytes > self.bytes && !self.tenant.take(Resource::PoolBytes, bytes - self.bytes) {
            return Err(Errno::NOMEM);
        }
        self.tenant.give(Resource::PoolBytes, self.bytes.saturating_sub(bytes));
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Fifos {
    fn drop(&mut self) {
        self.tenant.give(Resource::PoolBytes, self.bytes);
    }
}
