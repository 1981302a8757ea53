//! The host's own calls on a directory.

use super::{Op, ROUND, SIZE, Sample, System, cpu_of};
use crate::peers::Peer;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

pub(super) struct Host {
    folder: tempfile::TempDir,
    log: File,
    records: File,
    data: Vec<u8>,
}

impl Host {
    pub(super) fn new(peer: &Peer) -> io::Result<Host> {
        let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir_in(&peer.dir)?;
        let data = vec![0x5a; SIZE];
        let mut records =
            File::options().read(true).write(true).create_new(true).open(folder.path().join("records"))?;
        for _ in 0..ROUND {
            records.write_all(&data)?;
        }
        let log = OpenOptions::new().append(true).create_new(true).open(folder.path().join("log"))?;
        Ok(Host { folder, log, records, data })
    }

    fn once(&mut self, op: Op, n: u64) -> io::Result<()> {
        match op {
            Op::AppendChecksumWrite => {
                self.data[..8].copy_from_slice(&n.to_le_bytes());
                let sum = weldfs_functions::crc32c(&self.data);
                self.log.write_all(&self.data)?;
                self.log.write_all(&sum.to_le_bytes())
            }
            Op::OpenWriteClose => {
                File::create_new(self.folder.path().join(format!("f{}", n % ROUND)))?.write_all(&self.data)
            }
            Op::Read => self.records.read_exact_at(&mut self.data, n % ROUND * SIZE as u64),
            Op::Stat => rustix::fs::stat(self.folder.path().join("records")).map(drop).map_err(io::Error::from),
        }
    }

    /// What was made goes again, outside of the clock.
    fn clear(&mut self, op: Op) -> io::Result<()> {
        match op {
            Op::AppendChecksumWrite => self.log.set_len(0),
            Op::OpenWriteClose => {
                for n in 0..ROUND {
                    match std::fs::remove_file(self.folder.path().join(format!("f{n}"))) {
                        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                        _ => {}
                    }
                }
                Ok(())
            }
            Op::Read | Op::Stat => Ok(()),
        }
    }
}

impl System for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn takes(&self, depth: u32) -> bool {
        depth == 1
    }

    fn run(&mut self, op: Op, _depth: u32, time: Duration) -> io::Result<Sample> {
        let mut sample = Sample::default();
        let start = Instant::now();
        while start.elapsed() < time {
            let before = cpu_of(std::process::id());
            for n in 0..ROUND {
                let begun = Instant::now();
                self.once(op, n)?;
                sample.latencies.push(begun.elapsed().as_nanos().min(u32::MAX.into()) as u32);
                if start.elapsed() >= time {
                    break;
                }
            }
            sample.cpu += cpu_of(std::process::id()).saturating_sub(before);
            self.clear(op)?;
        }
        Ok(sample)
    }
}
