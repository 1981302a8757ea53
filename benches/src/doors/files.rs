//! The calls of a worker: through libc, which is what a preloaded library sees, or through the API.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weldfs::{At, Client, OpenFlags, OpenOptions};

/// Bytes of a small call.
pub(super) const PAGE: usize = 4096;
/// Pages of the file that small calls go to.
const PAGES: u64 = 256;
/// Bytes of a large call.
pub(super) const LARGE: usize = 1 << 20;

/// Files at a door.
pub(super) trait Files {
    fn getattr(&mut self) -> io::Result<()>;
    fn open_read_close(&mut self) -> io::Result<()>;
    /// The files that stay open.
    fn opened(&mut self) -> &mut dyn Calls;
    /// A new file with a page.
    fn create(&mut self, n: u64) -> io::Result<()>;
    /// Takes it away.
    fn remove(&mut self, n: u64) -> io::Result<()>;
    /// Makes an empty file in the directory that is listed.
    fn make(&mut self, n: u64) -> io::Result<()>;
    /// Names in the directory that is listed.
    fn list(&mut self) -> io::Result<u64>;
}

/// Calls on open files: small ones by their number, large ones by the offset.
pub(super) trait Calls {
    fn read(&mut self, n: u64) -> io::Result<()>;
    fn write(&mut self, n: u64) -> io::Result<()>;
    fn read_large(&mut self, at: u64) -> io::Result<()>;
    fn write_large(&mut self, at: u64) -> io::Result<()>;
}

/// An open file of either door.
trait Positioned {
    fn get(&self, room: &mut [u8], at: u64) -> io::Result<usize>;
    fn put(&self, data: &[u8], at: u64) -> io::Result<usize>;
}

impl Positioned for File {
    fn get(&self, room: &mut [u8], at: u64) -> io::Result<usize> {
        self.read_at(room, at)
    }

    fn put(&self, data: &[u8], at: u64) -> io::Result<usize> {
        self.write_at(data, at)
    }
}

impl Positioned for weldfs::File {
    fn get(&self, room: &mut [u8], at: u64) -> io::Result<usize> {
        self.read_at(room, at)
    }

    fn put(&self, data: &[u8], at: u64) -> io::Result<usize> {
        self.write_at(data, at)
    }
}

/// The file that small calls go to, that of large ones, and the bytes of both.
struct Opened<F> {
    file: F,
    large: F,
    room: Vec<u8>,
    data: Vec<u8>,
}

impl<F> Opened<F> {
    fn new(file: F, large: F, data: Vec<u8>) -> Opened<F> {
        Opened { file, large, room: vec![0; LARGE], data }
    }
}

impl<F: Positioned> Calls for Opened<F> {
    fn read(&mut self, n: u64) -> io::Result<()> {
        whole(self.file.get(&mut self.room[..PAGE], page(n))?, PAGE)
    }

    fn write(&mut self, n: u64) -> io::Result<()> {
        whole(self.file.put(&self.data[..PAGE], page(n))?, PAGE)
    }

    fn read_large(&mut self, at: u64) -> io::Result<()> {
        whole(self.large.get(&mut self.room, at)?, LARGE)
    }

    fn write_large(&mut self, at: u64) -> io::Result<()> {
        whole(self.large.put(&self.data, at)?, LARGE)
    }
}

/// A page that follows no order, and comes to all.
fn page(n: u64) -> u64 {
    n.wrapping_mul(7919) % PAGES * PAGE as u64
}

fn whole(n: usize, of: usize) -> io::Result<()> {
    if n == of { Ok(()) } else { Err(io::Error::other(format!("{n} of {of} bytes"))) }
}

/// A directory, by way of libc.
pub(super) struct Host {
    root: PathBuf,
    name: PathBuf,
    many: PathBuf,
    opened: Opened<File>,
}

impl Host {
    /// Makes `root`, a directory that is not there, and the files in it.
    pub(super) fn new(root: &Path) -> io::Result<Host> {
        fs::create_dir(root)?;
        let (name, many) = (root.join("file"), root.join("many"));
        fs::create_dir(&many)?;
        let data = vec![0x5a; LARGE];
        fs::write(&name, &data)?;
        let open = |path: &Path| File::options().read(true).write(true).create(true).truncate(false).open(path);
        let opened = Opened::new(open(&name)?, open(&root.join("large"))?, data);
        Ok(Host { root: root.to_owned(), name, many, opened })
    }

    fn new_file(&self, n: u64) -> PathBuf {
        self.root.join(format!("new{n}"))
    }
}

impl Files for Host {
    fn getattr(&mut self) -> io::Result<()> {
        fs::metadata(&self.name).map(drop)
    }

    fn open_read_close(&mut self) -> io::Result<()> {
        use std::io::Read;
        let n = File::open(&self.name)?.read(&mut self.opened.room[..PAGE])?;
        whole(n, PAGE)
    }

    fn opened(&mut self) -> &mut dyn Calls {
        &mut self.opened
    }

    fn create(&mut self, n: u64) -> io::Result<()> {
        use std::io::Write;
        File::create_new(self.new_file(n))?.write_all(&self.opened.data[..PAGE])
    }

    fn remove(&mut self, n: u64) -> io::Result<()> {
        fs::remove_file(self.new_file(n))
    }

    fn make(&mut self, n: u64) -> io::Result<()> {
        File::create_new(self.many.join(format!("name-{n:06}"))).map(drop)
    }

    fn list(&mut self) -> io::Result<u64> {
        fs::read_dir(&self.many)?.try_fold(0, |n, entry| entry.map(|_| n + 1))
    }
}

/// The API, on a device process or on one in this process.
pub(super) struct Api {
    client: Client,
    opened: Opened<weldfs::File>,
}

/// The worker's directory in the device.
const API_ROOT: &str = "/api";
const API_FILE: &str = "/api/file";
const API_MANY: &str = "/api/many";

fn new_file(n: u64) -> String {
    format!("{API_ROOT}/new{n}")
}

impl Api {
    pub(super) fn new(client: Client) -> io::Result<Api> {
        client.create_dir(API_ROOT)?;
        client.create_dir(API_MANY)?;
        let data = vec![0x5a; LARGE];
        client.write(API_FILE, &data)?;
        let options = OpenOptions::new().read(true).write(true).create(true);
        let opened = Opened::new(client.open(API_FILE, &options)?, client.open("/api/large", &options)?, data);
        Ok(Api { client, opened })
    }
}

impl Files for Api {
    fn getattr(&mut self) -> io::Result<()> {
        self.client.metadata(API_FILE).map(drop)
    }

    fn open_read_close(&mut self) -> io::Result<()> {
        let n = self.client.open_read_close(API_FILE, OpenFlags::READ, 0, &mut self.opened.room[..PAGE])?;
        whole(n, PAGE)
    }

    fn opened(&mut self) -> &mut dyn Calls {
        &mut self.opened
    }

    fn create(&mut self, n: u64) -> io::Result<()> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
        let done = self.client.open_write_close(new_file(n), flags, 0o644, At::Offset(0), &self.opened.data[..PAGE])?;
        whole(done.len, PAGE)
    }

    fn remove(&mut self, n: u64) -> io::Result<()> {
        self.client.remove_file(new_file(n))
    }

    fn make(&mut self, n: u64) -> io::Result<()> {
        let options = OpenOptions::new().write(true).create_new(true);
        self.client.open(format!("{API_MANY}/name-{n:06}"), &options).map(drop)
    }

    fn list(&mut self) -> io::Result<u64> {
        self.client.open_dir(API_MANY)?.entries().try_fold(0, |n, entry| entry.map(|_| n + 1))
    }
}
