//! What every device needs to have clients, whatever their files lie on: `weldfs-device` has them on a medium,
//! `weldfs-hostdir` in a directory of the host.
//!
//! * A client: `rings` its queue pairs, `pair` the device's ends of one, `arrivals` when its entries were first seen;
//!   `ofd` its handles, open file descriptions and placeholders, `locks` advisory locks; `departures` and `leavings`
//!   its end, `departed` what is still done for one that is gone.
//! * Commands: `sets` the tickets held on inodes; `inbox` what is left for a thread that polls rings.
//! * `tenants` says who is charged and what each may hold; `processors` which processors its threads may have.
//! * `counters`, `latency` and `stats` say what happened, `clock` measures it; `profile` says what hardware is
//!   emulated, which every report names. `limits` bounds everything.
//!
//! Nothing a client writes is believed: indices of rings are checked against private ones, the queue a command arrives
//! on says whose it is.

mod arrivals;
pub mod clock;
pub mod counters;
pub mod departed;
pub mod departures;
pub mod inbox;
pub mod latency;
pub mod leavings;
pub mod limits;
pub mod locks;
pub mod ofd;
pub mod pair;
pub mod processors;
pub mod profile;
pub mod rings;
pub mod sets;
pub mod stats;
pub mod tenants;
