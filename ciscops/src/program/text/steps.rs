//! The statements that move and change bytes, ask, and work on names.

use super::super::micro::Micro;
use super::super::operand::*;
use super::lex::Token;
use super::parse::{Done, Parser};
use crate::Handle;

pub(super) const SUMS: [(&str, SumKind); 3] =
    [("crc32c", SumKind::Crc32c), ("crc32", SumKind::Crc32), ("crc32c-masked", SumKind::Crc32cMasked)];
pub(super) const CODECS: [(&str, Codec); 3] = [("lz4", Codec::Lz4), ("zstd", Codec::Zstd), ("snappy", Codec::Snappy)];
pub(super) const RELATIONS: [(&str, Relation); 6] = [
    ("==", Relation::Eq),
    ("!=", Relation::Ne),
    ("<", Relation::Lt),
    ("<=", Relation::Le),
    (">", Relation::Gt),
    (">=", Relation::Ge),
];
pub(super) const ARITH: [(&str, Arith); 8] = [
    ("+", Arith::Add),
    ("-", Arith::Sub),
    ("*", Arith::Mul),
    ("&", Arith::And),
    ("|", Arith::Or),
    ("^", Arith::Xor),
    ("<<", Arith::Shl),
    (">>", Arith::Shr),
];
/// Bytes by which a sealed record is longer.
const SEAL_BYTES: u64 = 28;

impl Parser {
    fn sum(&mut self) -> Option<SumKind> {
        SUMS.iter().find(|(name, _)| self.took(name)).map(|(_, kind)| *kind)
    }

    fn fold(&mut self) -> Done<Option<Fold>> {
        let Some(kind) = self.sum() else { return Ok(None) };
        self.sign("->")?;
        Ok(Some(Fold { kind, to: self.sum_register()? }))
    }

    pub(super) fn read(&mut self, file: FileSlot) -> Done<Micro> {
        let (off, len) = (self.value()?, self.value()?);
        let known = if let Value::Imm(n) = len { Some(n) } else { None };
        self.sign("->")?;
        let to = match self.token().clone() {
            Token::Range(name) => To::Pool(self.out_range(&name, known)?),
            Token::Word(w) if w == "nowhere" => {
                self.took("nowhere");
                To::Nowhere
            }
            _ => To::Buffer(self.new_buffer(known)?),
        };
        let (whole, pad) = (self.took("whole"), self.took("pad"));
        let fold = self.fold()?;
        let count = self.option("count")?;
        if let To::Pool(p) = to {
            self.counted(p, count);
        }
        Ok(Micro::Read { file, off, len, to, whole, pad, fold, count })
    }

    pub(super) fn write_place(&mut self) -> Done<Place> {
        if self.took("end") {
            return Ok(Place::End);
        }
        if self.took("after") { Ok(Place::After) } else { self.value().map(Place::At) }
    }

    pub(super) fn write(&mut self, file: FileSlot, place: Place) -> Done<Micro> {
        let (from, _) = self.bytes()?;
        let fold = self.fold()?;
        Ok(Micro::Write { file, place, from, fold, at: self.option("at")? })
    }

    pub(super) fn copy(&mut self, from: FileSlot) -> Done<Micro> {
        let (off, len) = (self.value()?, self.value()?);
        self.sign("->")?;
        let to = self.some_file_named()?;
        let place = self.write_place()?;
        let max = if self.took("max") { self.small("bytes that are copied at most")? } else { 0 };
        Ok(Micro::CopyRange { from, off, len, max, to, place, count: self.option("count")? })
    }

    pub(super) fn scan(&mut self, file: FileSlot) -> Done<Micro> {
        let (off, limit) = (self.value()?, self.value()?);
        let keyword = |p: &mut Parser, word: &str| if p.took(word) { Ok(()) } else { p.expected(&format!("'{word}'")) };
        keyword(self, "head")?;
        let head = self.small("bytes of a record's head")?;
        keyword(self, "length")?;
        let (len_at, len) = (self.small("a place in the head")?, self.int()?);
        let Some(sum) = self.sum() else { return self.expected("a kind of checksum") };
        let sum_at = if self.took("behind") { None } else { Some(self.small("a place in the head")?) };
        let sum_order = if self.took("be") { Order::Big } else { Order::Little };
        let covers = if self.took("from") { self.small("a place in the head")? } else { head };
        let record = Record { head, len_at, len, sum_at, sum_order, sum, covers };
        let offsets = if self.took("offsets") {
            self.sign("->")?;
            let Token::Range(name) = self.token().clone() else { return self.expected("'@' and a name") };
            Some(self.out_range(&name, None)?)
        } else {
            None
        };
        let (count, end, why) = (self.option("count")?, self.option("end")?, self.option("why")?);
        Ok(Micro::Scan { file, off, len: limit, record, offsets, count, end, why })
    }

    /// Statements that touch neither files nor names.
    pub(super) fn inner(&mut self, verb: &str, place: (usize, usize)) -> Done<Micro> {
        if let Some((_, kind)) = SUMS.iter().find(|(name, _)| *name == verb) {
            let (of, _) = self.bytes()?;
            self.sign("->")?;
            return Ok(Micro::Checksum { kind: *kind, of, to: self.sum_register()? });
        }
        match verb {
            "patch" | "and" | "or" | "xor" | "add" | "cas" => self.change(verb),
            "load" => {
                let (buf, off, int) = (self.buffer()?, self.value()?, self.int()?);
                Ok(Micro::Load { to: self.arrow_register()?, buf, off, int })
            }
            "length" => Ok(Micro::Length { buf: self.buffer()?, to: self.arrow_register()? }),
            "let" => self.arithmetic(),
            "fill" | "extend" => {
                let append = verb == "extend";
                let at = self.new_place();
                let name = self.word("a buffer")?;
                let (from, n) = self.bytes()?;
                let buf = self.filled(at, &name, n, append)?;
                Ok(Micro::Fill { buf, from, append })
            }
            "slice" => {
                let (from, off, len) = (self.buffer()?, self.value()?, self.value()?);
                self.sign("->")?;
                let n = if let Value::Imm(n) = len { n } else { self.held(from) };
                Ok(Micro::Slice { buf: self.new_buffer(Some(n))?, from, off, len })
            }
            "give" => {
                let buf = self.buffer()?;
                self.sign("->")?;
                let Token::Range(name) = self.token().clone() else { return self.expected("'@' and a name") };
                let to = self.out_range(&name, Some(self.held(buf)))?;
                let count = self.option("count")?;
                self.counted(to, count);
                Ok(Micro::Give { buf, to, count })
            }
            "compress" | "decompress" | "encrypt" | "decrypt" | "seal" | "unseal" => self.transform(verb),
            "kernel" => self.kernel(),
            "if" => self.guard(),
            _ => self.fail(place, format!("no statement is called '{verb}'")),
        }
    }

    /// The buffer `name`, which gets `n` bytes more.
    fn filled(&mut self, at: (usize, usize), name: &str, n: u64, append: bool) -> Done<BufSlot> {
        match self.names.buffer(name) {
            Ok(super::names::Named::Buffer(b)) => {
                self.names.grow(b, if append { self.held(b) + n } else { n });
                Ok(b)
            }
            Ok(other) => self.fail(at, format!("expected a buffer, and '{name}' is {}", other.what())),
            Err(what) => self.fail(at, what),
        }
    }

    fn change(&mut self, verb: &str) -> Done<Micro> {
        let (buf, off) = (self.buffer()?, self.value()?);
        let change = match verb {
            "add" => Change::Add(self.int()?, self.value()?),
            "patch" => Change::Patch(self.bytes()?.0),
            "and" => Change::And(self.bytes()?.0),
            "or" => Change::Or(self.bytes()?.0),
            "xor" => Change::Xor(self.bytes()?.0),
            _ => Change::CompareSwap { expect: self.bytes()?.0, new: self.bytes()?.0 },
        };
        Ok(Micro::Change { buf, off, change })
    }

    fn arithmetic(&mut self) -> Done<Micro> {
        let to = self.register()?;
        self.sign("=")?;
        let a = self.value()?;
        let op = if self.took("min") {
            Arith::Min
        } else if self.took("max") {
            Arith::Max
        } else if let Some((_, op)) = ARITH.iter().find(|(sign, _)| self.took_sign(sign)) {
            *op
        } else {
            return Ok(Micro::Arith { to, a, op: Arith::Add, b: Value::Imm(0) });
        };
        Ok(Micro::Arith { to, a, op, b: self.value()? })
    }

    fn transform(&mut self, verb: &str) -> Done<Micro> {
        let codec = if verb.ends_with("compress") {
            let found = CODECS.iter().find(|(name, _)| self.took(name));
            let Some((_, codec)) = found else { return self.expected("lz4, zstd or snappy") };
            Some(*codec)
        } else {
            None
        };
        let from = self.buffer()?;
        self.sign("->")?;
        let held = self.held(from);
        let room = match verb {
            // As much as any of the formats may need for bytes that do not compress.
            "compress" => Some(held + held / 128 + 1024),
            "decompress" => None,
            "seal" => Some(held + SEAL_BYTES),
            _ => Some(held),
        };
        let buf = self.new_buffer(room)?;
        let how = match (verb, codec) {
            ("compress", Some(codec)) => Transform::Compress(codec),
            (_, Some(codec)) => Transform::Decompress(codec),
            _ => self.cipher(verb)?,
        };
        Ok(Micro::Transform { buf, from, how })
    }

    fn cipher(&mut self, verb: &str) -> Done<Transform> {
        if !self.took("key") {
            return self.expected("'key'");
        }
        let key = self.key()?;
        if verb.ends_with("seal") {
            let bound = if self.took("bound") { Some(self.bytes()?.0) } else { None };
            return Ok(if verb == "seal" { Transform::Seal { key, bound } } else { Transform::Open { key, bound } });
        }
        let at = self.new_place();
        if !self.took("unit") {
            return self.expected("'unit'");
        }
        let unit: u64 = self.number("bytes of a unit")?;
        if !unit.is_power_of_two() {
            return self.fail(at, "a unit has 512, 1024, 2048 or 4096 bytes");
        }
        let unit_log = unit.trailing_zeros() as u8;
        let first = if self.took("first") { self.value()? } else { Value::Imm(0) };
        Ok(match verb {
            "encrypt" => Transform::EncryptUnits { key, unit_log, first },
            _ => Transform::DecryptUnits { key, unit_log, first },
        })
    }

    /// `kernel NAME(4, r0, "text") from -> to`: a text is its bytes, four to a word, the last one filled up with zeros.
    fn kernel(&mut self) -> Done<Micro> {
        let mut name = self.word("the name of a kernel")?;
        if self.took_sign(":") {
            name = format!("{name}:{}", self.word("the name of a back-end")?);
        }
        let (mut words, mut registers): (Vec<u32>, u64) = (Vec::new(), 0);
        if self.took_sign("(") {
            let mut first = true;
            while !self.took_sign(")") {
                if !std::mem::take(&mut first) {
                    self.sign(",")?;
                }
                let at = self.new_place();
                if let Token::Text(text) = self.token().clone() {
                    self.skip_token();
                    let word = |four: &[u8]| four.iter().rev().fold(0, |word, b| word << 8 | u32::from(*b));
                    words.extend(text.chunks(4).map(word));
                    continue;
                }
                match self.value()? {
                    Value::Imm(v) => match u32::try_from(v) {
                        Ok(word) => words.push(word),
                        Err(_) => return self.fail(at, "a parameter of a kernel has 32 bits"),
                    },
                    Value::Reg(_) if words.len() >= 64 => {
                        return self.fail(at, "a register is one of the first 64 parameters");
                    }
                    Value::Reg(r) => {
                        registers |= 1 << words.len();
                        words.push(r.0.into());
                    }
                }
            }
        }
        let from = self.buffer()?;
        self.sign("->")?;
        let buf = self.new_buffer(None)?;
        let params: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let (name, params) = (self.new_string(name.as_bytes()), self.new_string(&params));
        Ok(Micro::Kernel { buf, from, name, params, registers })
    }

    fn guard(&mut self) -> Done<Micro> {
        let cond = if self.took("holds") {
            let (buf, off) = (self.buffer()?, self.value()?);
            Cond::Holds { buf, off, bytes: self.bytes()?.0 }
        } else {
            let a = self.value()?;
            let found = RELATIONS.iter().find(|(sign, _)| self.took_sign(sign));
            let Some((_, relation)) = found else { return self.expected("==, !=, <, <=, > or >=") };
            Cond::Compare(a, *relation, self.value()?)
        };
        if !self.took("else") {
            return self.expected("'else'");
        }
        let otherwise = if self.took("fail") {
            Else::Fail(self.errno()?)
        } else if self.took("end") {
            Else::End
        } else if self.took("skip") {
            Else::Skip(self.small("a number of statements")?)
        } else {
            return self.expected("fail, end or skip");
        };
        Ok(Micro::Guard { cond, otherwise })
    }

    pub(super) fn names(&mut self, verb: &str) -> Done<Micro> {
        match verb {
            "symlink" => {
                let target = self.string("what the link says")?;
                let (path, base) = self.path()?;
                return Ok(Micro::Symlink { target, base, path });
            }
            "set" => return self.set(),
            "link" => {
                let (from, from_base) = self.object()?;
                let (to, to_base) = self.path()?;
                return Ok(Micro::Link { from_base, from, to_base, to, follow: self.took("follow") });
            }
            _ => {}
        }
        let (path, base) = self.path()?;
        Ok(match verb {
            "unlink" => Micro::Unlink { base, path },
            "rmdir" => Micro::Rmdir { base, path },
            "mkdir" => Micro::Mkdir { base, path, mode: if self.took("mode") { self.mode()? } else { 0o755 } },
            _ => {
                let (to, to_base) = self.path()?;
                Micro::Rename { from_base: base, from: path, to_base, to, flags: self.rename_flags() }
            }
        })
    }

    /// A path, or `handle NUMBER` for what is behind one.
    fn object(&mut self) -> Done<(Option<Str>, Handle)> {
        if self.took("handle") {
            return Ok((None, Handle::from_wire(self.number("a handle")?)));
        }
        self.path().map(|(path, base)| (Some(path), base))
    }

    fn set(&mut self) -> Done<Micro> {
        let (path, base) = self.object()?;
        let mode = if self.took("mode") { Some(self.mode()?) } else { None };
        let size = if self.took("size") { Some(self.value()?) } else { None };
        let (atime_now, mtime_now) = (self.took("atime"), self.took("mtime"));
        Ok(Micro::SetAttr { base, path, nofollow: self.took("nofollow"), mode, size, atime_now, mtime_now })
    }
}
