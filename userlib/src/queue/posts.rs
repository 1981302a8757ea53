//! Commands that are published and not waited for.

use super::*;

impl Queue {
    /// Publishes a command that is not waited for. ENODEV or EIO when the device is gone; the command's errno goes to
    /// the lease.
    pub(crate) fn post(&mut self, command: &Command, posted: Posted) -> Result<(), Errno> {
        if !self.is_ours() {
            return Err(Errno::BADF);
        }
        // A device that is gone is not posted to.
        self.look_after(false);
        let ticket = loop {
            // What is answered gives its place back, so that all that is published has room for its answer.
            let submitted = self.absorb().and_then(|()| self.submit(command));
            match submitted {
                Ok(ticket) => break ticket,
                Err(Errno::AGAIN) if self.posts > 0 => self.await_posted()?,
                Err(e) => {
                    self.free(posted.range);
                    posted.done(None);
                    return Err(e);
                }
            }
        };
        let at = self.slot_of(ticket.0);
        self.posted[at] = Some(posted);
        self.posts += 1;
        self.unflushed = false;
        self.sq.publish();
        if self.sq.posts_need_doorbell() {
            self.write_doorbell();
        }
        Ok(())
    }

    /// Takes what is answered of what was posted.
    fn absorb(&mut self) -> Result<(), Errno> {
        while self.posts > 0 && self.has_completions() && self.land_next()? {}
        if self.unreleased > 0 {
            self.unreleased = 0;
            self.cq.release();
        }
        Ok(())
    }

    /// Waits until something that was posted is over.
    pub(crate) fn await_posted(&mut self) -> Result<(), Errno> {
        if !self.is_ours() {
            return Err(Errno::BADF);
        }
        let before = self.posts;
        // A signal handler that does not come back may have left it unpublished.
        self.sq.publish();
        // It was not rung for where the device naps.
        if before > 0 && self.sq.pending() > 0 {
            self.ring();
        }
        while self.posts == before && before > 0 {
            self.await_any()?;
            self.land_next()?;
            if self.dead {
                return Err(Errno::IO);
            }
        }
        Ok(())
    }

    /// Waits until all of it is.
    pub(crate) fn settle(&mut self) -> Result<(), Errno> {
        if !self.is_ours() {
            return Err(Errno::BADF);
        }
        while self.posts > 0 {
            self.await_posted()?;
        }
        Ok(())
    }

    /// A posted command is over.
    pub(super) fn over(&mut self, posted: Posted, cqe: &Cqe) {
        self.posts -= 1;
        self.free(posted.range);
        posted.done(Some(cqe));
    }
}
