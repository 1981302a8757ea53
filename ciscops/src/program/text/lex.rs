//! A text in tokens.

use super::Error;

/// One token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// A name, a keyword, or a path without spaces.
    Word(String),
    /// `@name`.
    Range(String),
    /// A number.
    Number(u64),
    /// "text" or x"hex".
    Text(Vec<u8>),
    /// `->`, `=`, `==` and so on.
    Sign(&'static str),
    /// `;` or the end of a line.
    End,
}

impl core::fmt::Display for Token {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Token::Word(w) => write!(f, "'{w}'"),
            Token::Range(r) => write!(f, "'@{r}'"),
            Token::Number(n) => write!(f, "{n}"),
            Token::Text(_) => write!(f, "a literal"),
            Token::Sign(s) => write!(f, "'{s}'"),
            Token::End => write!(f, "the end of the statement"),
        }
    }
}

/// A token and where it begins: line and column, from 1.
pub(super) type Placed = (Token, (usize, usize));

const SIGNS: [&str; 20] =
    ["->", "==", "!=", "<=", ">=", "<<", ">>", "=", "<", ">", "+", "-", "*", "&", "|", "^", ":", "(", ")", ","];

/// All tokens; the last is an end.
pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, Error> {
    let mut out = Vec::new();
    let mut last = (1, 1);
    for (i, line) in text.lines().enumerate() {
        let chars: Vec<char> = line.chars().collect();
        let mut lexer = Lexer { chars: &chars, at: 0, line: i + 1, listing: false };
        while let Some(token) = lexer.next()? {
            out.push(token);
        }
        last = (i + 1, chars.len() + 1);
        out.push((Token::End, last));
    }
    out.push((Token::End, last));
    Ok(out)
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
    line: usize,
    /// Inside parentheses, where a comma is a sign, and no part of a word.
    listing: bool,
}

/// What a bare word may hold: paths, names, keywords.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '-' | ',' | '~' | '%')
}

impl Lexer<'_> {
    fn fail<T>(&self, at: usize, what: impl Into<String>) -> Result<T, Error> {
        Err(Error { line: self.line, column: at + 1, what: what.into() })
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Result<Option<Placed>, Error> {
        while self.peek(0).is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        let Some(c) = self.peek(0).filter(|c| *c != '#') else { return Ok(None) };
        let start = self.at;
        let token = match c {
            ';' => {
                self.at += 1;
                Token::End
            }
            '"' => Token::Text(self.text()?),
            'x' if self.peek(1) == Some('"') => {
                self.at += 1;
                Token::Text(self.hex()?)
            }
            '@' => {
                self.at += 1;
                let name = self.word();
                if name.is_empty() {
                    return self.fail(start, "'@' is followed by the name of a range");
                }
                Token::Range(name)
            }
            '0'..='9' => Token::Number(self.number()?),
            c if self.in_word(c) && c != '-' => Token::Word(self.word()),
            _ => Token::Sign(self.sign()?),
        };
        Ok(Some((token, (self.line, start + 1))))
    }

    fn in_word(&self, c: char) -> bool {
        in_word(c) && !(self.listing && c == ',')
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while let Some(c) = self.peek(0).filter(|c| self.in_word(*c)) {
            if c == '-' && self.peek(1) == Some('>') {
                break;
            }
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    fn sign(&mut self) -> Result<&'static str, Error> {
        let is = |s: &&&str| s.chars().enumerate().all(|(i, c)| self.peek(i) == Some(c));
        let Some(sign) = SIGNS.iter().find(is) else { return self.fail(self.at, "a character that begins nothing") };
        self.at += sign.len();
        self.listing = *sign == "(" || self.listing && *sign != ")";
        Ok(sign)
    }

    /// 12, 0x1f, 4k, 1m, 2g.
    fn number(&mut self) -> Result<u64, Error> {
        let start = self.at;
        let word = self.word().to_ascii_lowercase();
        let bad = "a number is decimal, 0x and hexadecimal, or decimal with k, m or g (powers of 1024)";
        if let Some(hex) = word.strip_prefix("0x") {
            return u64::from_str_radix(hex, 16).or_else(|_| self.fail(start, bad));
        }
        let shift = match word.chars().last() {
            Some('k') => 10,
            Some('m') => 20,
            Some('g') => 30,
            _ => 0,
        };
        let digits = if shift > 0 { &word[..word.len() - 1] } else { &word[..] };
        let whole: Option<u64> = digits.parse().ok();
        whole.and_then(|n| n.checked_mul(1 << shift)).map_or_else(|| self.fail(start, bad), Ok)
    }

    fn text(&mut self) -> Result<Vec<u8>, Error> {
        let start = self.at;
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let Some(c) = self.peek(0) else { return self.fail(start, "a literal that does not end on its line") };
            self.at += 1;
            match c {
                '"' => return Ok(out),
                '\\' => out.push(self.escape()?),
                c => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
    }

    fn escape(&mut self) -> Result<u8, Error> {
        let at = self.at;
        self.at += 1;
        match self.chars.get(at) {
            Some('n') => Ok(b'\n'),
            Some('t') => Ok(b'\t'),
            Some('0') => Ok(0),
            Some('\\') => Ok(b'\\'),
            Some('"') => Ok(b'"'),
            Some('x') => {
                let digits: String = self.chars.iter().skip(at + 1).take(2).collect();
                self.at += 2;
                match u8::from_str_radix(&digits, 16) {
                    Ok(byte) if digits.len() == 2 => Ok(byte),
                    _ => self.fail(at, "\\x is followed by two hexadecimal digits"),
                }
            }
            _ => self.fail(at, "after a backslash comes one of n t 0 \\ \" x"),
        }
    }

    fn hex(&mut self) -> Result<Vec<u8>, Error> {
        let start = self.at;
        let digits: String = self.chars[start + 1..].iter().take_while(|c| **c != '"').collect();
        self.at += digits.chars().count() + 2;
        let even = self.at <= self.chars.len() && digits.len().is_multiple_of(2) && digits.is_ascii();
        let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok());
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        match bytes.filter(|_| even) {
            Some(bytes) if !digits.contains('+') => Ok(bytes),
            _ => self.fail(start, "x\"..\" holds pairs of hexadecimal digits"),
        }
    }
}
