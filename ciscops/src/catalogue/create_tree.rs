//! create_tree: directories, files with content and symbolic links, all of them or none.

use super::template::Template;
use crate::Handle;
use crate::flags::OpenFlags;
use crate::program::{Body, Builder, Bytes, Fault, Micro, Place, Value};

/// One thing that a [`CreateTree`] makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node<'a> {
    /// A directory.
    Directory {
        /// Its path.
        path: &'a [u8],
        /// Permission bits, after the umask.
        mode: u16,
    },
    /// A file.
    File {
        /// Its path.
        path: &'a [u8],
        /// Permission bits, after the umask.
        mode: u16,
        /// Bytes of its content.
        len: u32,
    },
    /// A symbolic link.
    Link {
        /// Its path.
        path: &'a [u8],
        /// What it says.
        target: &'a [u8],
    },
}

/// Makes things in the order given, a directory before what lies in it. Pool ranges: the content of each file that has
/// any, in order. Results: none.
///
/// All of them or none: EEXIST when one exists already. A small tree: a directory or link is one micro-op, a file two,
/// or three when it has content, of MICRO_OPS_MAX; all that is made, and the directories it is made in, are
/// INODE_SET_MAX inodes at most: E2BIG. A larger tree is a batch of single commands, and not atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateTree<'a> {
    /// Directory that all paths start from.
    pub base: Handle,
    /// What is made.
    pub nodes: &'a [Node<'a>],
}

impl Template for CreateTree<'_> {
    /// Nothing.
    type Answer = ();

    fn body(&self) -> Result<Body, Fault> {
        let (mut b, base) = (Builder::new(), self.base);
        // One after the other in one slot.
        let file = b.file();
        for node in self.nodes {
            match *node {
                Node::Directory { path, mode } => {
                    let path = b.string(path);
                    b.push(Micro::Mkdir { base, path, mode });
                }
                Node::File { path, mode, len } => {
                    let path = b.string(path);
                    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
                    b.push(Micro::Open { file, base, path, flags, mode, created: None });
                    if len > 0 {
                        let from = Bytes::Pool(b.pool(len));
                        b.push(Micro::Write { file, place: Place::At(Value::Imm(0)), from, fold: None, at: None });
                    }
                    b.push(Micro::Close { file });
                }
                Node::Link { path, target } => {
                    let (path, target) = (b.string(path), b.string(target));
                    b.push(Micro::Symlink { target, base, path });
                }
            }
        }
        b.finish()
    }

    fn answer(_: (u64, u64)) {}
}
