//! Programs as text, for people: `open /f rw create; read 0 4k -> a; crc32c a -> c; append c; close`. docs/COMMANDS.md
//! has the grammar. What is parsed goes through the verifier like any other program; what is printed parses to the same
//! micro-ops.

mod lex;
mod names;
mod parse;
mod print;
mod steps;

use super::{Body, Micro, Pool, Program, Reg};

/// Why a text is no program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Line, from 1.
    pub line: usize,
    /// Column, in characters from 1.
    pub column: usize,
    /// What is wrong there, and what was expected.
    pub what: String,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for Error {}

/// A pool range that the text names: `@name`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// Its name, without the `@`.
    pub name: String,
    /// Its number in the body.
    pub pool: Pool,
    /// The register that gets the number of bytes put there, when the text has one for it.
    pub count: Option<Reg>,
}

/// A program that was parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// Its body.
    pub body: Body,
    /// Its pool ranges, in the order of their numbers.
    pub ranges: Vec<Range>,
    /// Its registers by name, in the order in which the text names them. Without a `result` statement the first two
    /// are what the completion reports.
    pub registers: Vec<(String, Reg)>,
}

/// The program that `text` says. `inputs` are ranges that the caller has bytes for, with their length.
///
/// # Errors
/// The first thing that is wrong, and where.
pub fn parse(text: &str, inputs: &[(&str, u32)]) -> Result<Parsed, Error> {
    parse::parse(text, inputs, &[], false)
}

/// The same where the text may name keys (`key NAME`): `keys` has what the session calls them.
///
/// # Errors
/// The first thing that is wrong, and where.
pub fn parse_with_keys(text: &str, inputs: &[(&str, u32)], keys: &[(&str, u64)]) -> Result<Parsed, Error> {
    parse::parse(text, inputs, keys, false)
}

/// The same for a caller who wants the bytes of each range that were put there, and no more: where the program leaves
/// one of its two results free, and a `read` or `give` may fill its range in part only (without `whole`), the
/// result becomes the number of bytes in it. [`Range::count`] names the register; [`Parsed::registers`] does not.
///
/// # Errors
/// The first thing that is wrong, and where.
pub fn parse_counting(text: &str, inputs: &[(&str, u32)], keys: &[(&str, u64)]) -> Result<Parsed, Error> {
    parse::parse(text, inputs, keys, true)
}

/// A program as text, one statement a line; files, buffers, registers and ranges have their number for a name.
pub fn print(program: &Program) -> String {
    print::print(program)
}

/// One micro-op of a program, as `print` has it.
pub fn statement(program: &Program, micro: &Micro) -> String {
    print::statement(program, micro)
}
