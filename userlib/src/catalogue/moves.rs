//! Whole files: copied, put together, replaced, made.

use super::run::Operand;
use super::sums::length;
use crate::buf::Payload;
use crate::raw::Raw;
use weldfs_ciscops::catalogue::{AtomicReplace, CONCAT_MAX, Concat, CopyRange, CreateTree, Node};
use weldfs_ciscops::limits::PROGRAM_WRITE_MAX;
use weldfs_ciscops::{At, Errno, Handle};

/// One thing that [`Raw::create_tree`] makes.
#[derive(Debug, Clone, Copy)]
pub enum TreeNode<'a> {
    /// A directory.
    Directory {
        /// Its path.
        path: &'a [u8],
        /// Permission bits, after the umask.
        mode: u32,
    },
    /// A file.
    File {
        /// Its path.
        path: &'a [u8],
        /// Permission bits, after the umask.
        mode: u32,
        /// Its content.
        content: &'a [u8],
    },
    /// A symbolic link.
    Link {
        /// Its path.
        path: &'a [u8],
        /// What it says.
        target: &'a [u8],
    },
}

impl Raw<'_> {
    /// Copies bytes from one file to another, or to another place of the same, inside the device: nothing crosses the
    /// link. Returns the bytes copied, fewer than asked only where the source ends or the device refuses a later piece
    /// (ENOSPC, say): ask for the rest to be told. Up to 16 MiB are one atomic
    /// command; more are several, in order, and others may come in between. EINVAL when the two ranges are of one file
    /// and meet.
    pub fn copy_range(&self, from: Handle, offset: u64, len: u64, to: Handle, at: At) -> Result<u64, Errno> {
        let mut done = 0;
        loop {
            let piece = (len - done).min(PROGRAM_WRITE_MAX);
            let moved = |at: u64| at.checked_add(done).ok_or(Errno::FBIG);
            let at = if let At::Offset(at) = at { At::Offset(moved(at)?) } else { at };
            let template = CopyRange { from, offset: moved(offset)?, len: piece, to, at };
            let copied = match self.template(&template, &mut [], |_| 0)?.ok() {
                Ok((copied, _)) => copied,
                // What was copied before stays, and is said.
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return Err(e),
            };
            done += copied;
            if copied < piece || done >= len {
                return Ok(done);
            }
        }
    }

    /// Appends whole files, in order, to `to` (opened for both). Returns the size of `to` before and after. At most
    /// [`CONCAT_MAX`] files at once (EINVAL), of at most 16 MiB together, each its equal share (E2BIG): all or nothing.
    pub fn concat(&self, from: &[Handle], to: Handle) -> Result<(u64, u64), Errno> {
        const _: () = assert!(CONCAT_MAX == 4);
        self.fused(&Concat { from, to }, &mut [])
    }

    /// Gives `path` new content, durably and as a whole: after a crash the old is there or the new, and nothing else.
    /// What takes create, write, fsync, rename and an fsync of the directory elsewhere. `temporary` is a name in the
    /// same directory that nothing has (EEXIST), and nothing ever will see. The file is another inode afterwards.
    /// E2BIG above 1 MiB.
    pub fn atomic_replace<'p>(
        &self,
        base: Handle,
        path: &[u8],
        temporary: &[u8],
        mode: u32,
        data: impl Into<Payload<'p>>,
    ) -> Result<(), Errno> {
        let data = data.into();
        let template = AtomicReplace { base, path, temporary, mode: (mode & 0o7777) as u16, len: length(&data)? };
        self.fused(&template, &mut [Operand::In(data)])
    }

    /// Makes directories, files with content and symbolic links, in the order given: all or nothing. EEXIST when one
    /// exists. A small tree: a directory or link counts 1, a file 2, or 3 with content, up to 16; and up to 16 inodes
    /// with the directories that things are made in. E2BIG above; then make it in a [`Batch`](crate::Batch), not
    /// atomically.
    pub fn create_tree(&self, base: Handle, nodes: &[TreeNode<'_>]) -> Result<(), Errno> {
        let mut operands = Vec::new();
        let mut made = Vec::with_capacity(nodes.len());
        for node in nodes {
            made.push(match *node {
                TreeNode::Directory { path, mode } => Node::Directory { path, mode: (mode & 0o7777) as u16 },
                TreeNode::Link { path, target } => Node::Link { path, target },
                TreeNode::File { path, mode, content } => {
                    if !content.is_empty() {
                        operands.push(Operand::In(content.into()));
                    }
                    Node::File { path, mode: (mode & 0o7777) as u16, len: length(&content.into())? }
                }
            });
        }
        self.fused(&CreateTree { base, nodes: &made }, &mut operands)
    }
}
