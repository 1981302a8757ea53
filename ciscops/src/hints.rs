//! What a client says of a command that changes neither its result nor what is durable: how urgent it is among those
//! of its tenant, and how long what it writes will stay.

/// Share of a command among those of its own tenant that wait for the same core. What the tenant gets in all is its
/// own weight's business: no tenant gains by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Priority {
    /// As much as any other command.
    #[default]
    Normal = 0,
    /// A quarter of that: what nothing waits for.
    Low = 1,
    /// Half of it.
    Medium = 2,
    /// Twice as much: what a user waits for.
    High = 3,
}

/// How long a client expects what it writes to stay until it is written over or removed; shorter and longer only mean
/// anything beside each other. The device takes free blocks for each from places of their own, so that what goes
/// together frees whole runs. As fcntl(2)'s F_SET_RW_HINT and the streams of NVMe (NVM Express Base Specification,
/// "Directives").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Life {
    /// Nothing is known of it.
    #[default]
    Unknown = 0,
    /// Short.
    Short = 1,
    /// Longer than short.
    Medium = 2,
    /// Longer than medium.
    Long = 3,
    /// As long as the file system, perhaps.
    Extreme = 4,
}

/// Both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Hints {
    /// Of every command.
    pub priority: Priority,
    /// Of what it writes; without effect in a command that writes nothing.
    pub life: Life,
}

impl Priority {
    /// Every value.
    pub const ALL: [Priority; 4] = [Priority::Normal, Priority::Low, Priority::Medium, Priority::High];

    /// From its wire value.
    pub const fn from_wire(value: u16) -> Option<Priority> {
        match value {
            0 => Some(Priority::Normal),
            1 => Some(Priority::Low),
            2 => Some(Priority::Medium),
            3 => Some(Priority::High),
            _ => None,
        }
    }

    /// What a command of this priority is charged, in its own file's queue, is its time times 1024 over this.
    pub const fn weight(self) -> u32 {
        match self {
            Priority::Normal => 1024,
            Priority::Low => 256,
            Priority::Medium => 512,
            Priority::High => 2048,
        }
    }
}

impl Life {
    /// Every value.
    pub const ALL: [Life; 5] = [Life::Unknown, Life::Short, Life::Medium, Life::Long, Life::Extreme];

    /// From its wire value.
    pub const fn from_wire(value: u16) -> Option<Life> {
        match value {
            0 => Some(Life::Unknown),
            1 => Some(Life::Short),
            2 => Some(Life::Medium),
            3 => Some(Life::Long),
            4 => Some(Life::Extreme),
            _ => None,
        }
    }
}

impl Hints {
    /// Without any.
    pub const NONE: Hints = Hints { priority: Priority::Normal, life: Life::Unknown };

    /// Whether there is any.
    pub fn is_none(self) -> bool {
        self == Hints::NONE
    }

    /// Those of an element of a batch with `batch`: the batch's priority, and its life where the element has none.
    pub fn within(self, batch: Hints) -> Hints {
        let life = if self.life == Life::Unknown { batch.life } else { self.life };
        Hints { priority: batch.priority, life }
    }

    /// Both in five bits: priority in bits 0-1, life in bits 2-4.
    pub const fn to_wire(self) -> u16 {
        self.priority as u16 | (self.life as u16) << 2
    }

    /// From those; what is above them must be zero.
    pub const fn from_wire(bits: u16) -> Option<Hints> {
        match (Priority::from_wire(bits & 3), Life::from_wire(bits >> 2)) {
            (Some(priority), Some(life)) => Some(Hints { priority, life }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_its_bits_and_no_other_bits_have_a_meaning() {
        let mut meant = 0;
        for bits in 0..=u16::MAX {
            if let Some(hints) = Hints::from_wire(bits) {
                assert_eq!(hints.to_wire(), bits);
                meant += 1;
            }
        }
        assert_eq!(meant, Priority::ALL.len() * Life::ALL.len());
        assert!(Hints::from_wire(0).is_some_and(Hints::is_none));
    }

    #[test]
    fn weights_go_up_with_priority() {
        let weights = [Priority::Low, Priority::Medium, Priority::Normal, Priority::High].map(Priority::weight);
        assert!(weights.is_sorted_by(|a, b| a < b));
    }
}
