//! Which commands may be picked in whose place.
//!
//! A boosted command holds what another tenant waits for, its *lender*. It stays where it is, and beside that in a list
//! of its lender: whoever of the two is first gets it picked. A command is in one list at most; lists are first in,
//! first out.

use crate::policy::{TenantId, Token};
use crate::queues::NONE;

/// The commands that may be picked in one tenant's place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> List {
        List { first: NONE, last: NONE }
    }
}

impl List {
    /// The first of them.
    pub(crate) fn first(&self) -> Option<Token> {
        (self.first != NONE).then_some(Token(self.first))
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    lender: u32,
    next: u32,
    prev: u32,
}

const NOWHERE: Place = Place { lender: NONE, next: NONE, prev: NONE };

/// The places of all boosted commands, by token.
#[derive(Debug)]
pub(crate) struct Places {
    places: Vec<Place>,
    boosted: usize,
}

impl Places {
    /// Room for the tokens of `slots` commands.
    pub(crate) fn with_capacity(slots: usize) -> Places {
        Places { places: vec![NOWHERE; slots], boosted: 0 }
    }

    /// True when no command is boosted.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.boosted == 0
    }

    /// In whose place a command may be picked.
    #[inline]
    pub(crate) fn lender(&self, token: Token) -> Option<TenantId> {
        if self.is_empty() {
            return None;
        }
        self.places.get(token.0 as usize).filter(|p| p.lender != NONE).map(|p| TenantId(p.lender))
    }

    /// Appends a command that is in no list to that of `lender`; true when the list was empty.
    pub(crate) fn add(&mut self, list: &mut List, lender: TenantId, token: Token) -> bool {
        let at = token.0;
        if self.places.len() <= at as usize {
            self.places.resize(at as usize + 1, NOWHERE);
        }
        let prev = std::mem::replace(&mut list.last, at);
        self.places[at as usize] = Place { lender: lender.0, next: NONE, prev };
        self.boosted += 1;
        match prev {
            NONE => list.first = at,
            prev => self.places[prev as usize].next = at,
        }
        prev == NONE
    }

    /// Takes a command out of the list it is in; true when that is empty now.
    pub(crate) fn take(&mut self, list: &mut List, token: Token) -> bool {
        let Place { next, prev, .. } = std::mem::replace(&mut self.places[token.0 as usize], NOWHERE);
        self.boosted -= 1;
        match prev {
            NONE => list.first = next,
            prev => self.places[prev as usize].next = next,
        }
        match next {
            NONE => list.last = prev,
            next => self.places[next as usize].prev = prev,
        }
        list.first == NONE
    }
}
