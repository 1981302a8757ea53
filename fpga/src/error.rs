//! Why a card refuses.

use crate::kernel::Fault;
use crate::manifest::PackageError;
use weldfs_ciscops::error::Errno;

/// Why a card refuses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CardError {
    /// No kernel has that name, or it lacks that back-end: ENOENT.
    #[error("no kernel is named {0}")]
    NoKernel(String),
    /// The stage of a chain is of no kernel that the card has, or lacks that back-end: ENOENT.
    #[error("its stage {0} is of no kernel or back-end that the device has")]
    NoStage(String),
    /// The kernel is loaded and not activated: ENODEV.
    #[error("kernel {0} is not activated")]
    Inactive(String),
    /// The kernel runs on a card that this machine does not have, or cannot use: ENODEV. A sentence.
    #[error("{0}")]
    NoCard(String),
    /// All slots are taken, or the kernel is in use: EBUSY.
    #[error("{0}")]
    Busy(String),
    /// No slot is as large as the kernel: ENOSPC.
    #[error("no slot is large enough for kernel {0}")]
    TooLarge(String),
    /// A kernel asks for more of the card's memory than a slot has: ENOSPC.
    #[error("kernel {kernel} asks for {asks} bytes of the card's memory; a slot has {has}")]
    Memory {
        /// Its name.
        kernel: String,
        /// What its manifest says (`ports.dram_bytes`).
        asks: u64,
        /// What each slot has.
        has: u64,
    },
    /// The kernel was there from the start and stays: EPERM.
    #[error("kernel {0} belongs to the card and cannot be unloaded")]
    DeviceDefined(String),
    /// A value of the configuration is out of range: EINVAL.
    #[error("{0}")]
    Config(String),
    /// The package is not one: EINVAL, or ENOENT where a file is missing.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The kernel did not begin.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl CardError {
    /// As the errno that a command ends with.
    pub fn errno(&self) -> Errno {
        match self {
            CardError::NoKernel(_) | CardError::NoStage(_) => Errno::NOENT,
            CardError::Inactive(_) | CardError::NoCard(_) => Errno::NODEV,
            CardError::Busy(_) => Errno::BUSY,
            CardError::TooLarge(_) | CardError::Memory { .. } => Errno::NOSPC,
            CardError::DeviceDefined(_) => Errno::PERM,
            CardError::Config(_) => Errno::INVAL,
            CardError::Package(PackageError::File { .. } | PackageError::NoFolder { .. }) => Errno::NOENT,
            CardError::Package(PackageError::Taken(_)) => Errno::EXIST,
            CardError::Package(_) => Errno::INVAL,
            CardError::Fault(fault) => fault.errno(),
        }
    }
}
