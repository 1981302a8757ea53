//! A log of checksummed records, each durable before the next; then verified inside the device.
//!
//! ```text
//! cargo run -p weldfs-examples --bin log -- SOCKET
//! ```

use std::io;
use weldfs::{Client, Durability, OpenOptions};

const RECORDS: u64 = 1000;

fn main() -> io::Result<()> {
    let socket = std::env::args().nth(1).ok_or_else(|| io::Error::other("usage: log SOCKET"))?;
    let client = Client::connect(socket)?.durability(Durability::Durable);
    let log = client.open("/log", &OpenOptions::new().read(true).write(true).create(true).truncate(true))?;
    let (mut places, mut last) = (Vec::new(), 0);
    for number in 0..RECORDS {
        let record = format!("record {number}");
        // One command: the bytes, their CRC-32C behind them, and persistent when it returns.
        let sealed = log.append_checksum_write(record.as_bytes())?;
        places.push((sealed.offset, record.len() as u32));
        last = sealed.checksum;
    }
    for (offset, len) in places {
        // Only the verdict crosses the link: an Err with EBADMSG would be a damaged record.
        log.checksum_verify(offset, len)?;
    }
    println!("{RECORDS} records, all sound; the last one's checksum is {last:#010x}");
    log.close()
}
