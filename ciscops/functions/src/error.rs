//! What a function refuses, and why.

/// Why a function gave nothing. No variant holds a byte of the data or of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Error {
    /// The output would be longer than the caller allowed: E2BIG.
    #[error("the output is longer than its limit")]
    TooBig,
    /// The input is not what the format says, or not authentic: EBADMSG.
    #[error("the input is damaged, or not of this format")]
    Corrupt,
    /// A length, unit or key that the function is not defined for: EINVAL.
    #[error("a length, unit or key that this function is not defined for")]
    Invalid,
    /// The key was used as often as is safe: EKEYEXPIRED.
    #[error("the key was used as often as is safe")]
    KeyWornOut,
}
