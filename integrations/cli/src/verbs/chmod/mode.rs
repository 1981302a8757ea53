//! MODE as chmod(1) takes it: octal digits, or clauses of letters.

use std::str::FromStr;

/// Bits to set, or clauses to apply one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChange(Vec<Clause>);

/// `[ugoa]*[-+=][rwxXst]*`; octal digits are one clause that sets all bits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Clause {
    /// Bits that it is about: of user, group, others, with their set-id and sticky bits.
    who: u32,
    op: Op,
    /// Bits it names, of all three.
    bits: u32,
    /// X: x where there is one already, and for directories.
    x_if: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Add,
    Remove,
    Set,
}

const ALL: u32 = 0o7777;
const X: u32 = 0o111;

impl ModeChange {
    /// The bits of a file that had `bits`.
    pub fn apply(&self, bits: u32, is_dir: bool) -> u32 {
        self.0.iter().fold(bits, |now, clause| {
            let x = if clause.x_if && (is_dir || now & X != 0) { X } else { 0 };
            let named = (clause.bits | x) & clause.who;
            match clause.op {
                Op::Add => now | named,
                Op::Remove => now & !named,
                Op::Set => now & !clause.who | named,
            }
        })
    }
}

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<ModeChange, String> {
        let bad = || format!("'{text}' is no mode: say 755, or u+x, go-w, a=rX");
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let digits = text.chars().all(|c| c.is_digit(8)) && text.len() <= 5;
            let bits = u32::from_str_radix(text, 8).ok().filter(|bits| digits && *bits <= ALL).ok_or_else(bad)?;
            return Ok(ModeChange(vec![Clause { who: ALL, op: Op::Set, bits, x_if: false }]));
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_clauses(part, &mut clauses).ok_or_else(bad)?;
        }
        Ok(ModeChange(clauses))
    }
}

/// The clauses of one part between commas: whom it is about, then one or more changes (`u+r-w`).
fn parse_clauses(part: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let letters = part.find(['+', '-', '='])?;
    let (who, mut rest) = part.split_at(letters);
    let who = who.chars().try_fold(0, |who, c| {
        Some(
            who | match c {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => ALL,
                _ => return None,
            },
        )
    })?;
    // Without one: of all, whatever the umask of this process is (the image's users are not its users).
    let who = if who == 0 { ALL } else { who };
    while let Some(sign) = rest.chars().next() {
        let op = match sign {
            '+' => Op::Add,
            '-' => Op::Remove,
            '=' => Op::Set,
            _ => return None,
        };
        let tail = &rest[1..];
        let end = tail.find(['+', '-', '=']).unwrap_or(tail.len());
        let (named, next) = tail.split_at(end);
        let mut clause = Clause { who, op, bits: 0, x_if: false };
        for c in named.chars() {
            match c {
                'r' => clause.bits |= 0o444,
                'w' => clause.bits |= 0o222,
                'x' => clause.bits |= X,
                'X' => clause.x_if = true,
                's' => clause.bits |= 0o6000,
                't' => clause.bits |= 0o1000,
                _ => return None,
            }
        }
        // The sticky bit belongs to no one's letters: `o+t` and `+t` give it, `u+t` does not.
        clauses.push(clause);
        rest = next;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(text: &str, bits: u32, is_dir: bool) -> u32 {
        text.parse::<ModeChange>().expect(text).apply(bits, is_dir)
    }

    #[test]
    fn modes_are_octal_or_letters_as_for_chmod() {
        assert_eq!(on("640", 0o7777, false), 0o640);
        assert_eq!(on("4755", 0, false), 0o4755);
        assert_eq!(on("u+x", 0o644, false), 0o744);
        assert_eq!(on("go-w", 0o666, false), 0o644);
        assert_eq!(on("a=r", 0o4777, false), 0o444);
        assert_eq!(on("u=rw,go=r", 0o777, false), 0o644);
        assert_eq!(on("+x", 0o600, false), 0o711);
        assert_eq!(on("u+s,g+s", 0o755, false), 0o6755);
        assert_eq!(on("+t", 0o777, true), 0o1777);
        assert_eq!(on("o=", 0o777, false), 0o770);
        assert_eq!(on("u+r-w", 0o200, false), 0o400);
    }

    #[test]
    fn a_capital_x_is_for_directories_and_what_is_executable() {
        assert_eq!(on("a+X", 0o644, false), 0o644);
        assert_eq!(on("a+X", 0o744, false), 0o755);
        assert_eq!(on("a+X", 0o600, true), 0o711);
        assert_eq!(on("u=rwX,go=rX", 0o600, true), 0o755);
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "8", "7777777", "17777", "u", "u+", "z+x", "u+q", "u+x,", "rwx"] {
            let parsed = text.parse::<ModeChange>();
            assert_eq!(parsed.is_ok(), text == "u+", "{text}: {parsed:?}");
        }
    }
}
