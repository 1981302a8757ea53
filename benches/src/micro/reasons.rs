//! Why a row may be slower than the host: in words, never in numbers. What holds for a row follows from what it does.

use super::cell::{Class, MicroOp, Phase};
use super::report::PeerRow;
use crate::report::Machine;

/// One sentence for a cell that is slower than a peer.
pub(super) fn reason(
    (op, size, depth, threads, phase, class): &(String, u32, u32, u32, Phase, Class),
    peer: &PeerRow,
    machine: &Machine,
) -> &'static str {
    let Some(op) = MicroOp::by_name(op) else { return "an operation without a reason on file" };
    if *threads as usize >= machine.cores {
        return "client threads and the device's thread share the cores, where the host's calls run on the caller's \
                 own";
    }
    if *class == Class::Durable && peer.on_disk {
        return "both wait for the disk's flush; the log writes its record besides the data";
    }
    if *size >= 16 << 10 && op.writes() && *class == Class::Volatile {
        return "large payloads are a matter of copying: ours goes past the cache to the medium with a checksum per \
                 block, the host's stays in the page cache";
    }
    match op {
        MicroOp::Append | MicroOp::Write => {
            "a single operation has nothing to fuse: the host copies into its page cache and is done, ours crosses a \
             ring, writes data and record to the medium, and checksums both"
        }
        MicroOp::Read if *depth == 1 => {
            "a single read has nothing to fuse: a round trip over the ring costs more than a system call"
        }
        MicroOp::Read => "a page-cache hit is one copy; ours verifies the block's checksum and answers over the ring",
        MicroOp::OpenReadClose | MicroOp::OpenReadCloseCopied | MicroOp::OpenReadCloseBatched => {
            "the host's name and page caches hold everything; ours resolves the name, verifies checksums and copies \
             once over the ring"
        }
        MicroOp::ReadModifyWriteNarrow => {
            "the host touches the 64 bytes in its page cache only; ours makes the change durable in order, with a \
             record and the block's checksum"
        }
        MicroOp::AppendChecksumWriteGathered => {
            "gathered, the host's append is one system call into the page cache; ours commits payload and trailer as \
             two steps of the log"
        }
        MicroOp::CompressWrite | MicroOp::EncryptWrite => {
            "both spend their time in the same codec or cipher; the device's core has nobody else's to use"
        }
        MicroOp::CopyRange | MicroOp::Concat => {
            "the host shares or copies pages in its cache; ours copies to the medium with checksums and a record"
        }
        MicroOp::StatMany | MicroOp::ReaddirPlus => {
            "the host's name cache answers in a few hundred nanoseconds a call; ours resolves each name in its tree"
        }
        MicroOp::IndexWalk | MicroOp::LogRecover | MicroOp::ReadChecksumVerify => {
            "the host reads its page cache; ours verifies the checksum of every block that it walks over"
        }
        _ if *phase == Phase::Steady => {
            "the log is small here and checkpoints run on the same cores; the host writes back later"
        }
        _ if peer.fs == "tmpfs" => {
            "a tmpfs writes nothing back and keeps no log: its calls are the cost of the system calls alone"
        }
        _ => "the device's steps for names, space, log and checksums cost more than the calls that one command saves",
    }
}
