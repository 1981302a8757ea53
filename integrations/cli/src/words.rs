//! Parameters of kernels, as command lines and files have them.

use crate::failure::reason;

/// What one `--param` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words(Vec<u32>);

impl Words {
    /// A number of 32 bits (`42`, `0x2a`, or `-1`, which is 0xffffffff); `text:STRING`, its length in bytes and then
    /// the bytes; `hex:DIGITS` and `file:FILE`, the bytes alone.
    pub fn of(text: &str) -> Result<Words, String> {
        let words =
            match text.split_once(':') {
                Some(("text", s)) => [vec![s.len() as u32], packed(s.as_bytes())].concat(),
                Some(("hex", digits)) => packed(&bytes(digits)?),
                Some(("file", file)) => {
                    packed(&std::fs::read(file).map_err(|e| format!("cannot read {file}: {}", reason(&e)))?)
                }
                _ => vec![word(text).map_err(|_| {
                    format!("'{text}' is not a number of 32 bits, text:STRING, hex:DIGITS or file:FILE")
                })?],
            };
        Ok(Words(words))
    }

    /// Those of several, one behind the other.
    pub fn all(several: &[Words]) -> Vec<u32> {
        several.iter().flat_map(|w| w.0.iter().copied()).collect()
    }
}

/// A number of 32 bits.
pub fn word(text: &str) -> Result<u32, String> {
    let found = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok().or_else(|| text.parse().ok().map(i32::cast_unsigned)),
    };
    found.ok_or_else(|| format!("'{text}' is no parameter: it is a number of 32 bits, as 42, 0x2a or -1"))
}

fn bytes(digits: &str) -> Result<Vec<u8>, String> {
    let byte = |at| digits.get(at..at + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.ok_or_else(|| format!("'{digits}' are no pairs of hexadecimal digits"))
}

/// Bytes, four to a word, the first one lowest; surplus bytes are zero.
fn packed(bytes: &[u8]) -> Vec<u32> {
    let word = |c: &[u8]| c.iter().rev().fold(0, |w, b| w << 8 | u32::from(*b));
    bytes.chunks(4).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_words() {
        let of = |text: &str| Words::of(text).map(|w| w.0);
        assert_eq!(of("12"), Ok(vec![12]));
        assert_eq!(of("0xffffffff"), Ok(vec![u32::MAX]));
        assert_eq!(of("-2"), Ok(vec![0xffff_fffe]));
        assert_eq!(of("text:foo12"), Ok(vec![5, 0x316f_6f66, 0x32]));
        assert_eq!(of("text:"), Ok(vec![0]));
        assert_eq!(of("hex:0102030405"), Ok(vec![0x0403_0201, 5]));
        for bad in ["", "x", "4294967296", "-2147483649", "hex:1", "hex:zz", "hex:é", "file:/nowhere/at/all"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
