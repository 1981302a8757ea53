//! A fused program from its text: money goes from one file to the other, or nothing happens.
//!
//! ```text
//! cargo run -p weldfs-examples --bin transfer -- SOCKET examples/programs/transfer.txt
//! ```

use std::io;
use weldfs::catalogue::Operand;
use weldfs::{Client, Durability};
use weldfs_ciscops::Errno;
use weldfs_ciscops::program::text;

fn balance(client: &Client, path: &str) -> io::Result<u64> {
    let bytes = client.read(path)?;
    let head = bytes.first_chunk().ok_or_else(|| io::Error::other(format!("{path} is too short")))?;
    Ok(u64::from_le_bytes(*head))
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, program] = &arguments[..] else { return Err(io::Error::other("usage: transfer SOCKET PROGRAM")) };
    let client = Client::connect(socket)?.durability(Durability::Durable);
    let program = text::parse(&std::fs::read_to_string(program)?, &[("AMOUNT", 8)]).map_err(io::Error::other)?;
    client.write("/alice", &100u64.to_le_bytes())?;
    client.write("/bob", &20u64.to_le_bytes())?;
    for amount in [40u64, 60, 80] {
        let bytes = amount.to_le_bytes();
        let done = client.raw().program(&program.body, &mut [Operand::In((&bytes[..]).into())], |_, _| 0)?;
        match Errno(done.status) {
            Errno(0) => println!("{amount}: {} left", done.result),
            Errno::DQUOT => println!("{amount}: not enough"),
            other => return Err(other.into()),
        }
    }
    println!("alice {}, bob {}", balance(&client, "/alice")?, balance(&client, "/bob")?);
    Ok(())
}
