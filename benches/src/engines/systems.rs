//! The systems of a run: images, devices and directories, and what a driver is started with on each.

use super::Options;
use super::count;
use super::plan::{Cell, Engine};
use crate::micro::Watch;
use crate::micro::systems::prepare;
use crate::peers::{Ground, LoopMount, Peer};
use crate::served::{ServeOptions, Served};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weldfs::Client;

/// Every way to run an engine, as `--systems` has them.
pub const SYSTEMS: [&str; 4] = ["inline", "served", "preload", "host"];
/// What an image stands for, as `--medium` has them.
pub const MEDIA: [&str; 2] = ["pmem", "block"];
/// An image or a prepared file system is so many times as large as a set, and has so many bytes at least.
const ROOM: (u64, u64) = (12, 512 << 20);
/// Where `weldfs run` shows a device's files.
const PREFIX: &str = "/weld";

/// How the engine gets to its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// WeldFS's plug-in, the image opened in the engine's process.
    Inline,
    /// WeldFS's plug-in, a device process.
    Served,
    /// The engine as it is, under `weldfs run`.
    Preload,
    /// The engine as it is, on a directory.
    Host,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        SYSTEMS[self as usize]
    }
}

/// A system.
pub(super) struct System {
    /// inline, served, preload or the name of the peer.
    pub(super) name: String,
    pub(super) way: Way,
    /// "pmem" or "block" for an image, else the file system.
    pub(super) kind: String,
    /// Where the bytes live, in words.
    pub(super) medium: String,
    /// The number of the disk; none for what lives in RAM. Equals are on the same one.
    pub(super) disk: Option<u64>,
    pub(super) power_safe: bool,
    /// Whether what is durable here is kept when the kernel ends: there are no durable rows where it is not.
    pub(super) keeps: bool,
    /// The image, or the directory.
    path: PathBuf,
    /// Counters of the disk.
    pub(super) stat: Option<PathBuf>,
    pub(super) client: Option<Client>,
    served: Option<Served>,
    /// Goes last.
    _folder: Option<tempfile::TempDir>,
}

/// All systems. Dropped in this order: systems, then mounts.
pub(super) struct Systems {
    pub(super) all: Vec<System>,
    pub(super) peers: Vec<(Peer, Ground)>,
    pub(super) skipped: Vec<String>,
    _mounts: Vec<LoopMount>,
}

fn image(program: &Path, medium: &str, size: u64, place: &Path) -> io::Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir_in(place)?;
    let image = folder.path().join("image");
    let mut mkfs = Command::new(program);
    mkfs.arg("mkfs").arg(&image).args(["--size", &size.to_string(), "--medium", medium]);
    let out = mkfs.stdin(Stdio::null()).output()?;
    if !out.status.success() {
        return Err(io::Error::other(format!("mkfs: {}", String::from_utf8_lossy(&out.stderr).trim())));
    }
    Ok((folder, image))
}

impl Systems {
    pub(super) fn start(o: &Options, watch: &mut dyn Watch) -> io::Result<Systems> {
        let mut systems = Systems { all: Vec::new(), peers: Vec::new(), skipped: Vec::new(), _mounts: Vec::new() };
        let room = (o.plan.bytes() * ROOM.0).max(ROOM.1).next_multiple_of(1 << 20);
        if o.prepare && o.chosen.system(Way::Host.name()) {
            let made = prepare(&o.chosen, room, watch)?;
            (systems._mounts, systems.peers, systems.skipped) = (made.mounts, made.peers, made.skipped);
        }
        for peer in &o.peers {
            systems.peers.push((peer.clone(), Ground::of(&peer.dir)?));
        }
        if o.media.iter().any(|m| m == "pmem") {
            systems.weldfs(o, "pmem", room, Path::new("/dev/shm"), watch)?;
        }
        if o.media.iter().any(|m| m == "block") {
            let disk = systems.peers.iter().find(|(_, ground)| ground.on_disk()).map(|(peer, _)| peer.dir.clone());
            match o.dir.clone().or(disk) {
                Some(dir) => systems.weldfs(o, "block", room, &dir, watch)?,
                None => systems.skipped.push("block images: no --dir, and no --peer on a disk".into()),
            }
        }
        if o.chosen.system(Way::Host.name()) {
            for (peer, ground) in systems.peers.clone() {
                systems.host(&peer, &ground)?;
            }
        }
        Ok(systems)
    }

    fn weldfs(
        &mut self,
        o: &Options,
        kind: &'static str,
        size: u64,
        place: &Path,
        watch: &mut dyn Watch,
    ) -> io::Result<()> {
        let ground = Ground::of(place)?;
        let disk = (kind == "block" && ground.on_disk()).then(|| place.metadata().map(|m| m.dev())).transpose()?;
        let medium = if kind == "pmem" { "emulated pmem".to_owned() } else { format!("image, {}", ground.describe()) };
        for way in [Way::Inline, Way::Served, Way::Preload].into_iter().filter(|w| o.chosen.system(w.name())) {
            if watch.stop() {
                return Err(crate::micro::interrupted());
            }
            watch.at(&format!("making a {kind} image, {}", way.name()), false);
            let mut system = System {
                name: way.name().to_owned(),
                way,
                kind: kind.to_owned(),
                medium: medium.clone(),
                disk,
                power_safe: kind == "block" && ground.power_safe(),
                keeps: true,
                path: PathBuf::new(),
                stat: (kind == "block").then(|| count::of(place)).flatten(),
                client: None,
                served: None,
                _folder: None,
            };
            if way == Way::Served {
                let options = ServeOptions {
                    medium: kind,
                    size: size.to_string(),
                    place: place.to_owned(),
                    ..Default::default()
                };
                let served = Served::start(&o.program, &options)?;
                system.client = Some(served.connect()?);
                system.path = served.socket().to_owned();
                system.served = Some(served);
            } else {
                let (folder, path) = image(&o.program, kind, size, place)?;
                (system.path, system._folder) = (path, Some(folder));
            }
            self.all.push(system);
        }
        Ok(())
    }

    fn host(&mut self, peer: &Peer, ground: &Ground) -> io::Result<()> {
        let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir_in(&peer.dir)?;
        let disk = ground.on_disk().then(|| peer.dir.metadata().map(|m| m.dev())).transpose()?;
        if !ground.keeps() {
            self.skipped.push(format!("{}, durable: {} keeps nothing", peer.name, ground.fs));
        }
        self.all.push(System {
            name: peer.name.clone(),
            way: Way::Host,
            kind: ground.fs.clone(),
            medium: ground.describe(),
            disk,
            power_safe: ground.power_safe(),
            keeps: ground.keeps(),
            path: folder.path().to_owned(),
            stat: count::of(&peer.dir),
            client: None,
            served: None,
            _folder: Some(folder),
        });
        Ok(())
    }
}

impl System {
    /// Whether it has this cell.
    pub(super) fn takes(&self, cell: &Cell) -> bool {
        let plugin = matches!(self.way, Way::Inline | Way::Served);
        // The index of a WAL is shared memory that the preload library does not have (docs/PRELOAD.md).
        let mapped = self.way != Way::Preload || cell.journal != "wal";
        (self.keeps || !cell.workload.durable()) && (plugin || !cell.handoff) && mapped
    }

    /// The driver with a target and a database on it; its other arguments are the caller's.
    pub(super) fn command(&self, program: &Path, driver: &Path, db: &str) -> Command {
        let mut command = match self.way {
            Way::Preload => {
                let mut run = Command::new(program);
                run.args(["run", "--prefix", PREFIX, "--image"]).arg(&self.path).arg("--").arg(driver);
                run
            }
            _ => Command::new(driver),
        };
        match self.way {
            Way::Inline | Way::Served => command.arg("--target").arg(&self.path).args(["--db", &format!("/{db}")]),
            Way::Preload => command.args(["--target", "host", "--db", &format!("{PREFIX}/{db}")]),
            Way::Host => command.args(["--target", "host", "--db"]).arg(self.path.join(db)),
        };
        // An experiment's device is as it says, whatever weldfs.toml there is.
        command.env("WELDFS_CONFIG", "").env("WELDFS_WAIT", "30");
        command
    }

    /// Frees the space of a database that is not needed any more.
    pub(super) fn remove(&self, program: &Path, db: &str, engine: Engine) -> io::Result<()> {
        if self.way == Way::Host {
            let path = self.path.join(db);
            return if engine == Engine::Sqlite { std::fs::remove_file(path) } else { std::fs::remove_dir_all(path) };
        }
        let name = format!("{}:/{db}", self.path.display());
        let out = Command::new(program).args(["rm", "-r", &name]).stdin(Stdio::null()).output()?;
        if out.status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("rm: {}", String::from_utf8_lossy(&out.stderr).trim())))
    }

    /// Writes back what was left, as far as it is anyone's but the driver's.
    pub(super) fn rest(&self) -> io::Result<()> {
        match (&self.client, self.way) {
            (Some(client), _) => client.sync(),
            (None, Way::Host) => Ok(rustix::fs::syncfs(File::open(&self.path)?)?),
            (None, _) => Ok(()),
        }
    }
}
