//! Statements. The grammar is in docs/COMMANDS.md; one method per family of statements.

use super::super::micro::Micro;
use super::super::operand::*;
use super::super::{Builder, Fault};
use super::lex::{Placed, Token, tokens};
use super::names::{Named, Names};
use super::{Error, Parsed, Range};
use crate::flags::{Access, OpenFlags, RenameFlags};
use crate::{Errno, Handle};

pub(super) type Done<T> = Result<T, Error>;

pub(super) struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    pub(super) names: Names,
    pub(super) builder: Builder,
    /// Where each micro-op stands.
    places: Vec<(usize, usize)>,
    /// The file that statements without one mean.
    file: Option<FileSlot>,
    results: Option<[Option<Reg>; 2]>,
    /// Registers that count what is put in a range.
    counts: Vec<(Pool, Reg)>,
    /// Keys that the caller has, by name.
    keys: Vec<(String, u64)>,
}

pub(super) fn parse(text: &str, inputs: &[(&str, u32)], keys: &[(&str, u64)], counting: bool) -> Done<Parsed> {
    let tokens = tokens(text)?;
    let names = Names::new(&tokens);
    let (builder, places, counts) = (Builder::new(), Vec::new(), Vec::new());
    let keys = keys.iter().map(|(name, key)| ((*name).to_owned(), *key)).collect();
    let mut p = Parser { tokens, at: 0, names, builder, places, file: None, results: None, counts, keys };
    for (name, bytes) in inputs {
        let pool = p.names.range(name).map_err(|what| Error { line: 1, column: 1, what })?;
        p.names.range_bytes[usize::from(pool.0)] = *bytes;
        p.names.stated_ranges |= 1 << pool.0;
    }
    while p.at < p.tokens.len() {
        if !p.took_end() {
            p.statement()?;
            if !p.took_end() {
                return p.expected("the end of the statement");
            }
        }
    }
    p.finish(counting)
}

impl Parser {
    fn finish(mut self, counting: bool) -> Done<Parsed> {
        let registers = self.names.registers();
        let named = |i: usize| registers.get(i).map(|(_, r)| *r);
        let mut results = self.results.unwrap_or([named(0), named(1)]);
        if counting {
            self.count_outputs(&mut results);
        }
        self.builder.results(results[0], results[1]);
        let end = self.places.last().copied().unwrap_or((1, 1));
        let at = |(line, column): (usize, usize), what: String| Error { line, column, what };
        self.names.declare(&mut self.builder).map_err(|what| at(end, what))?;
        let counts = self.counts;
        let count = |pool| counts.iter().find(|(p, _)| *p == pool).map(|(_, r)| *r);
        let ranges =
            self.names.ranges().into_iter().map(|(name, pool)| Range { name, pool, count: count(pool) }).collect();
        let body = self.builder.finish().map_err(|fault: Fault| {
            let place = fault.micro.and_then(|m| self.places.get(usize::from(m)).copied());
            at(place.unwrap_or(end), format!("{} ({})", fault.why, fault.errno.name()))
        })?;
        Ok(Parsed { body, ranges, registers })
    }

    /// Where a result is left, it becomes the number of bytes in a range that may be filled in part only.
    fn count_outputs(&mut self, results: &mut [Option<Reg>; 2]) {
        for (_, pool) in self.names.ranges() {
            let Some(free) = results.iter().position(Option::is_none) else { return };
            let micros = self.builder.micros().iter().enumerate();
            let mut fills = micros.filter_map(|(i, m)| m.fills_in_part(pool).map(|count| (i, count)));
            // Of several, it is open which one filled it last.
            let (Some((index, count)), None) = (fills.next(), fills.next()) else { continue };
            let reg = match count {
                Some(reg) if results.contains(&Some(reg)) => continue,
                Some(reg) => reg,
                None => {
                    let Some(reg) = self.names.spare_register() else { return };
                    self.builder.count_into(index, reg);
                    self.counts.push((pool, reg));
                    reg
                }
            };
            results[free] = Some(reg);
        }
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(t, _)| t)
    }

    fn place(&self) -> (usize, usize) {
        self.tokens.get(self.at).or(self.tokens.last()).map_or((1, 1), |(_, p)| *p)
    }

    pub(super) fn fail<T>(&self, place: (usize, usize), what: impl Into<String>) -> Done<T> {
        Err(Error { line: place.0, column: place.1, what: what.into() })
    }

    pub(super) fn expected<T>(&self, what: &str) -> Done<T> {
        self.fail(self.place(), format!("expected {what}, found {}", self.peek()))
    }

    fn took_end(&mut self) -> bool {
        let end = *self.peek() == Token::End;
        self.at += usize::from(end);
        end
    }

    pub(super) fn took_sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(s) if *s == sign);
        self.at += usize::from(found);
        found
    }

    pub(super) fn sign(&mut self, sign: &str) -> Done<()> {
        if self.took_sign(sign) { Ok(()) } else { self.expected(&format!("'{sign}'")) }
    }

    pub(super) fn took(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(w) if w == word);
        self.at += usize::from(found);
        found
    }

    pub(super) fn word(&mut self, what: &str) -> Done<String> {
        let Token::Word(w) = self.peek() else { return self.expected(what) };
        let w = w.clone();
        self.at += 1;
        Ok(w)
    }

    pub(super) fn number(&mut self, what: &str) -> Done<u64> {
        let Token::Number(n) = *self.peek() else { return self.expected(what) };
        self.at += 1;
        Ok(n)
    }

    pub(super) fn small<T: TryFrom<u64>>(&mut self, what: &str) -> Done<T> {
        let place = self.place();
        let n = self.number(what)?;
        T::try_from(n).or_else(|_| self.fail(place, format!("{n} is too large for {what}")))
    }

    /// A key by its name or number.
    pub(super) fn key(&mut self) -> Done<u64> {
        let Token::Word(word) = self.peek() else { return self.number("the name or number of a key") };
        match self.keys.iter().find(|(name, _)| name == word) {
            Some((_, key)) => {
                let key = *key;
                self.at += 1;
                Ok(key)
            }
            None => self.expected("the name of a key that was given, or its number"),
        }
    }

    /// A name of a kind, which this place gives a meaning if it has none.
    fn named(
        &mut self,
        what: &str,
        define: fn(&mut Names, &str) -> Result<Named, String>,
    ) -> Done<(Named, (usize, usize))> {
        let place = self.place();
        let name = self.word(what)?;
        match define(&mut self.names, &name) {
            Ok(named) => Ok((named, place)),
            Err(what) => self.fail(place, what),
        }
    }

    /// A register that is being set.
    pub(super) fn register(&mut self) -> Done<Reg> {
        match self.named("a register", Names::register)? {
            (Named::Register(r), _) => {
                self.names.sums &= !(1 << r.0);
                Ok(r)
            }
            (other, place) => self.fail(place, format!("expected a register, and this is {}", other.what())),
        }
    }

    pub(super) fn sum_register(&mut self) -> Done<Reg> {
        let r = self.register()?;
        self.names.sums |= 1 << r.0;
        Ok(r)
    }

    /// `-> register`.
    pub(super) fn arrow_register(&mut self) -> Done<Reg> {
        self.sign("->")?;
        self.register()
    }

    /// A buffer that is given something, at most `bytes`; `None` when the text must say how much with `buffer`.
    pub(super) fn new_buffer(&mut self, bytes: Option<u64>) -> Done<BufSlot> {
        match self.named("a buffer", Names::buffer)? {
            (Named::Buffer(b), place) => {
                let known = u64::from(self.names.capacities[usize::from(b.0)]);
                let stated = self.names.stated_buffers >> b.0 & 1 == 1;
                if bytes.is_none() && known == 0 && !stated {
                    return self.fail(place, "how large? say `buffer NAME SIZE` before");
                }
                self.names.grow(b, bytes.unwrap_or(known));
                Ok(b)
            }
            (other, place) => self.fail(place, format!("expected a buffer, and this is {}", other.what())),
        }
    }

    /// A buffer that has something.
    pub(super) fn buffer(&mut self) -> Done<BufSlot> {
        let place = self.place();
        let name = self.word("a buffer")?;
        match self.names.get(&name) {
            Some(Named::Buffer(b)) => Ok(b),
            Some(other) => self.fail(place, format!("expected a buffer, and '{name}' is {}", other.what())),
            None => self.fail(place, format!("no buffer is called '{name}'")),
        }
    }

    pub(super) fn held(&self, b: BufSlot) -> u64 {
        self.names.held[usize::from(b.0)]
    }

    fn new_file(&mut self) -> Done<FileSlot> {
        let named = if self.took("as") {
            self.named("a name for the file", Names::file)?
        } else {
            let place = self.place();
            match self.names.file("file") {
                Ok(named) => (named, place),
                Err(what) => return self.fail(place, what),
            }
        };
        match named {
            (Named::File(f), _) => {
                self.file = Some(f);
                Ok(f)
            }
            (other, place) => self.fail(place, format!("expected a name for a file, and this is {}", other.what())),
        }
    }

    /// The file that is named, or else the one opened last.
    fn some_file(&mut self) -> Done<FileSlot> {
        if let Token::Word(w) = self.peek()
            && let Some(Named::File(f)) = self.names.get(w)
        {
            self.at += 1;
            return Ok(f);
        }
        match self.file {
            Some(f) => Ok(f),
            None => self.expected("a file (none is open)"),
        }
    }

    /// A number, or a register's name.
    pub(super) fn value(&mut self) -> Done<Value> {
        if let Token::Number(n) = *self.peek() {
            self.at += 1;
            return Ok(Value::Imm(n));
        }
        let Token::Word(w) = self.peek() else { return self.expected("a number or a register") };
        match self.names.get(w) {
            Some(Named::Register(r)) => {
                self.at += 1;
                Ok(Value::Reg(r))
            }
            _ => self.expected("a number or a register"),
        }
    }

    /// A path, and perhaps the directory it starts from.
    pub(super) fn path(&mut self) -> Done<(Str, Handle)> {
        let path = self.string("a path")?;
        Ok((path, self.base()?))
    }

    fn base(&mut self) -> Done<Handle> {
        if self.took("in") { self.number("a handle").map(Handle::from_wire) } else { Ok(Handle::ROOT) }
    }

    pub(super) fn string(&mut self, what: &str) -> Done<Str> {
        let bytes = match self.peek() {
            Token::Word(w) => w.clone().into_bytes(),
            Token::Text(t) => t.clone(),
            _ => return self.expected(what),
        };
        self.at += 1;
        Ok(self.builder.string(&bytes))
    }

    /// `u8`, `u16le`, `u64be` and so on.
    pub(super) fn int(&mut self) -> Done<Int> {
        let place = self.place();
        let word = self.word("an integer such as u32le")?;
        let (bits, order) = match word.strip_suffix("be") {
            Some(bits) => (bits, Order::Big),
            None => (word.strip_suffix("le").unwrap_or(&word), Order::Little),
        };
        let width = match bits {
            "u8" => Width::W1,
            "u16" => Width::W2,
            "u32" => Width::W4,
            "u64" => Width::W8,
            _ => return self.fail(place, "expected u8, u16, u32 or u64, then le or be"),
        };
        Ok(Int { width, order })
    }

    /// Bytes, and at most how many.
    pub(super) fn bytes(&mut self) -> Done<(Bytes, u64)> {
        let what = "a buffer, a register, '@range' or a literal";
        let place = self.place();
        match self.peek().clone() {
            Token::Text(t) => {
                self.at += 1;
                let bytes = self.builder.literal(&t);
                Ok((bytes, t.len() as u64))
            }
            Token::Range(name) => {
                self.at += 1;
                let pool = self.names.range(&name).or_else(|what| self.fail(place, what))?;
                Ok((Bytes::Pool(pool), self.names.range_bytes[usize::from(pool.0)].into()))
            }
            Token::Word(name) => match self.names.get(&name) {
                Some(Named::Buffer(b)) => {
                    self.at += 1;
                    Ok((Bytes::Buffer(b), self.held(b)))
                }
                Some(Named::Register(r)) => {
                    self.at += 1;
                    let usual = if self.names.sums >> r.0 & 1 == 1 { Int::U32_LE } else { Int::U64_LE };
                    let int = if self.took_sign(":") { self.int()? } else { usual };
                    Ok((Bytes::Int(r, int), int.width.bytes() as u64))
                }
                _ => self.expected(what),
            },
            _ => self.expected(what),
        }
    }

    /// A range that bytes are put in, at most so many if the text is to say it here.
    pub(super) fn out_range(&mut self, name: &str, bytes: Option<u64>) -> Done<Pool> {
        let place = self.place();
        let pool = self.names.range(name).or_else(|what| self.fail(place, what))?;
        let stated = self.names.stated_ranges >> pool.0 & 1 == 1;
        let room = &mut self.names.range_bytes[usize::from(pool.0)];
        match bytes {
            _ if stated => {}
            Some(n) => *room = (*room).max(n.try_into().unwrap_or(u32::MAX)),
            None if *room == 0 => return self.fail(place, "how large? say `output @NAME SIZE` before"),
            None => {}
        }
        self.at += 1;
        Ok(pool)
    }

    pub(super) fn counted(&mut self, pool: Pool, count: Option<Reg>) {
        if let Some(r) = count {
            self.counts.push((pool, r));
        }
    }

    /// `word -> register`, if it comes now.
    pub(super) fn option(&mut self, word: &str) -> Done<Option<Reg>> {
        if self.took(word) { self.arrow_register().map(Some) } else { Ok(None) }
    }

    pub(super) fn push(&mut self, place: (usize, usize), m: Micro) {
        self.places.push(place);
        self.builder.push(m);
    }

    fn statement(&mut self) -> Done<()> {
        let place = self.place();
        let verb = self.word("a statement")?;
        let m = match verb.as_str() {
            "buffer" | "input" | "output" | "result" => return self.declaration(&verb),
            "open" => self.open()?,
            "use" => {
                let h = Handle::from_wire(self.number("a handle")?);
                let need = match self.word("r, w or rw")?.as_str() {
                    "r" => Access::READ,
                    "w" => Access::WRITE,
                    "rw" => Access::READ | Access::WRITE,
                    _ => return self.fail(place, "a handle is used r, w or rw"),
                };
                Micro::Use { file: self.new_file()?, h, need }
            }
            "size" => Micro::Size { file: self.some_file()?, to: self.arrow_register()? },
            "truncate" => Micro::Truncate { file: self.some_file()?, size: self.value()? },
            "close" => {
                let file = self.some_file()?;
                self.file = self.file.filter(|f| *f != file);
                Micro::Close { file }
            }
            "sync" => Micro::Sync,
            "read" => {
                let file = self.some_file()?;
                self.read(file)?
            }
            "write" => {
                let file = self.some_file()?;
                let place = self.write_place()?;
                self.write(file, place)?
            }
            "append" => {
                let file = self.some_file()?;
                self.write(file, Place::End)?
            }
            "copy" => {
                let from = self.some_file()?;
                self.copy(from)?
            }
            "scan" => {
                let file = self.some_file()?;
                self.scan(file)?
            }
            "unlink" | "rmdir" | "mkdir" | "rename" | "link" | "symlink" | "set" => self.names(&verb)?,
            _ => self.inner(&verb, place)?,
        };
        self.push(place, m);
        Ok(())
    }

    fn declaration(&mut self, verb: &str) -> Done<()> {
        match verb {
            "buffer" => {
                let b = self.new_buffer(Some(0))?;
                self.names.capacities[usize::from(b.0)] = self.small("bytes of a buffer")?;
                self.names.stated_buffers |= 1 << b.0;
            }
            "result" => {
                let first = self.result()?;
                let second = if *self.peek() == Token::End { None } else { self.result()? };
                self.results = Some([first, second]);
            }
            _ => {
                let (place, Token::Range(name)) = (self.place(), self.peek().clone()) else {
                    return self.expected("'@' and a name");
                };
                self.at += 1;
                let pool = self.names.range(&name).or_else(|what| self.fail(place, what))?;
                let place = self.place();
                let bytes: u32 = self.small("bytes of a range")?;
                let room = &mut self.names.range_bytes[usize::from(pool.0)];
                if verb == "input" && self.names.stated_ranges >> pool.0 & 1 == 1 && *room != bytes {
                    let what = format!("@{name} has {room} bytes");
                    return self.fail(place, what);
                }
                *room = bytes;
                self.names.stated_ranges |= 1 << pool.0;
            }
        }
        Ok(())
    }

    /// A register that may be set further on, or `none`.
    fn result(&mut self) -> Done<Option<Reg>> {
        if self.took("none") {
            return Ok(None);
        }
        match self.named("a register or none", Names::register)? {
            (Named::Register(r), _) => Ok(Some(r)),
            (other, place) => self.fail(place, format!("expected a register, and this is {}", other.what())),
        }
    }

    fn open(&mut self) -> Done<Micro> {
        let place = self.place();
        let (path, base) = self.path()?;
        let mut flags = OpenFlags::empty();
        let mut mode = 0o644;
        while let Token::Word(w) = self.peek().clone() {
            flags |= match w.as_str() {
                "r" => OpenFlags::READ,
                "w" => OpenFlags::WRITE,
                "rw" => OpenFlags::READ | OpenFlags::WRITE,
                "mode" => {
                    self.at += 1;
                    mode = self.mode()?;
                    continue;
                }
                "as" | "created" => break,
                other => match flag(other) {
                    Some(flag) => flag,
                    None => return self.expected("r, w, rw, a flag of open, mode, as or created"),
                },
            };
            self.at += 1;
        }
        if !flags.intersects(OpenFlags::READ | OpenFlags::WRITE) {
            return self.fail(place, "a file is opened r, w or rw");
        }
        let file = self.new_file()?;
        Ok(Micro::Open { file, base, path, flags, mode, created: self.option("created")? })
    }

    /// Permission bits, in octal as everywhere.
    pub(super) fn mode(&mut self) -> Done<u16> {
        let place = self.place();
        let n = self.number("permission bits")?;
        let octal = u16::from_str_radix(&n.to_string(), 8).ok().filter(|m| *m <= 0o7777);
        octal.map_or_else(|| self.fail(place, "permission bits are octal, at most 7777"), Ok)
    }

    pub(super) fn rename_flags(&mut self) -> RenameFlags {
        let mut flags = RenameFlags::empty();
        flags.set(RenameFlags::NOREPLACE, self.took("noreplace"));
        flags.set(RenameFlags::EXCHANGE, self.took("exchange"));
        flags
    }

    pub(super) fn errno(&mut self) -> Done<Errno> {
        let place = self.place();
        if let Token::Number(_) = self.peek() {
            return self.small::<u16>("an errno").map(|n| Errno(n.into()));
        }
        let name = self.word("an errno")?;
        let found = (1..=4095).map(Errno).find(|e| e.name() == name);
        found.map_or_else(|| self.fail(place, format!("no errno is called '{name}'")), Ok)
    }

    pub(super) fn new_place(&self) -> (usize, usize) {
        self.place()
    }

    pub(super) fn token(&self) -> &Token {
        self.peek()
    }

    pub(super) fn skip_token(&mut self) {
        self.at += 1;
    }

    pub(super) fn new_string(&mut self, bytes: &[u8]) -> Str {
        self.builder.string(bytes)
    }

    pub(super) fn some_file_named(&mut self) -> Done<FileSlot> {
        self.some_file()
    }
}

/// Flags of open by name.
pub(super) const FLAGS: [(&str, OpenFlags); 11] = [
    ("create", OpenFlags::CREATE),
    ("excl", OpenFlags::EXCL),
    ("trunc", OpenFlags::TRUNC),
    ("append", OpenFlags::APPEND),
    ("nofollow", OpenFlags::NOFOLLOW),
    ("sync", OpenFlags::SYNC),
    ("dsync", OpenFlags::DSYNC),
    ("noatime", OpenFlags::NOATIME),
    ("nonblock", OpenFlags::NONBLOCK),
    ("direct", OpenFlags::DIRECT),
    ("directory", OpenFlags::DIRECTORY),
];

fn flag(name: &str) -> Option<OpenFlags> {
    FLAGS.iter().find(|(n, _)| *n == name).map(|(_, f)| *f)
}
