//! How far a program that computes has come, and what it would have changed (`rehearsal`).

use weldfs_ciscops::{Handle, Kept};

use weldfs_session::clock::now_ns;

/// A file as the program would have made it.
#[derive(Default)]
pub(super) struct Imagined {
    /// None: what the host has of it does not count.
    pub host: Option<(u64, u64)>,
    pub size: u64,
    pub parts: Vec<(u64, Vec<u8>)>,
}

/// What a name would lead to.
#[derive(Clone)]
pub(super) enum Leads {
    Nowhere,
    /// To a file that would be new, by its number.
    New(usize),
    /// Where another name leads now.
    As(Handle, Vec<u8>),
}

/// How far a program that computes has come.
#[derive(Default)]
pub(super) struct Foresight {
    /// What has been computed.
    pub kept: Option<Kept>,
    /// It is only rehearsed.
    pub rehearsal: bool,
    /// It has computed since it was given a thread, and when that was.
    pub computed: bool,
    pub begun: u64,
    pub computes: bool,
    /// Something is different from what it was in the rehearsal.
    pub lost: bool,
    /// Others wait for its thread.
    pub cut: bool,
    pub files: Vec<Imagined>,
    pub names: Vec<(Handle, Vec<u8>, Leads)>,
    pub noted: usize,
}

impl Foresight {
    pub fn rehearsal(kept: Option<Kept>) -> Foresight {
        Foresight { kept, rehearsal: true, begun: now_ns(), ..Foresight::default() }
    }

    pub fn leads(&self, base: Handle, path: &[u8]) -> Option<&Leads> {
        self.names.iter().rev().find(|(b, p, _)| *b == base && p == path).map(|(.., leads)| leads)
    }

    pub fn lead(&mut self, base: Handle, path: &[u8], leads: Leads) {
        self.names.push((base, path.to_vec(), leads));
    }
}
