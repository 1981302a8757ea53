//! The future of a slot: it serves one command after the other.

use weldfs_ciscops::{Command, Op, Outcome};

use super::batch;
use super::done::Done;
use super::grants::begin_read;
use super::mail::Mail;
use super::opcx::OpCx;
use super::virt::perform;

/// Commands that touch nothing but the completion ring.
#[inline]
pub(super) fn immediate(cmd: &Command) -> Option<Done> {
    match cmd.op {
        Op::Nop => Some(Outcome::ok(0, 0).into()),
        _ => None,
    }
}

/// The future of a slot: serves one command after the other.
pub(super) async fn serve(mut mail: Mail<OpCx<'_>, Done>) {
    loop {
        let cx = mail.next().await;
        let done = run(&cx).await;
        drop(cx);
        mail.answer(done);
    }
}

/// The way of every command that is not immediate.
async fn run(cx: &OpCx<'_>) -> Done {
    match cx.cmd.op {
        Op::Batch { .. } => Box::pin(batch::run(cx)).await,
        Op::ReadDirPlus { .. } => Box::pin(batch::read_dir_plus(cx)).await,
        _ => {
            let reading = begin_read(cx.core, &cx.queue, &cx.cmd);
            let mut done = perform(cx).await;
            cx.core.watches.end_read(&cx.queue, reading, Some(&mut done.outcome));
            done
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of_future<A, F>(_: impl Fn(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_slots_of_a_thread_fit_into_two_megabytes() {
        let bytes = bytes_of_future(|mail: Mail<OpCx<'static>, Done>| serve(mail));
        assert!(bytes * crate::limits::SLOTS_PER_THREAD <= 2 << 20, "{bytes} bytes each");
    }
}
