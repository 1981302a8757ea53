//! MicroTx/MacroTx: record format, group commit, watermark, recovery scan.
//!
//! What lives here: records and LSNs, and the `Medium`, `Clock` and `Random` traits that storagefs implements. It does not
//! know what a file is: an effect list is bytes to it. It may touch `weldfs-ciscops` for shared memory and nothing above.
//!
//! What flows through: encoded effects in, an LSN out, and later the durable watermark that covers it.
#![forbid(unsafe_code)]

mod clock;
mod ids;
mod medium;
mod segment;

pub use clock::{Clock, Random};
pub use ids::{BLOCK, BlockNo, Lsn};
pub use medium::{IoWrite, Medium, MediumError, MediumInfo, MediumKind};
pub use segment::{LogArea, SEGMENTS_MAX, Segment, SegmentTable};
