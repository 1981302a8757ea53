//! The doors of a run: devices, mounts, directories, and a worker process at each.

use super::sets::Sets;
use super::{Op, Options};
use crate::micro::Watch;
use crate::peers::Ground;
use crate::served::{ServeOptions, Served};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Every door, as `--doors` has them; directories of the host have the names that they are given.
pub const DOORS: [&str; 6] = ["api-inline", "api-served", "preload", "mount", "mount-exclusive", "host"];
/// What images stand for, as `--medium` has them.
pub const MEDIA: [&str; 2] = ["pmem", "block"];
/// Bytes of an image.
const SIZE: &str = "2G";
/// Where `weldfs run` shows a device's files.
const PREFIX: &str = "/weld";

/// A door, with its worker.
pub(super) struct System {
    pub(super) name: String,
    /// Where the bytes live, in words.
    pub(super) medium: String,
    pub(super) durability: &'static str,
    pub(super) power_safe: bool,
    /// Whether programs can use it.
    programs: bool,
    worker: Process,
    /// Goes after the worker: a folder, a mount.
    _ground: Vec<Box<dyn std::any::Any>>,
}

/// All doors that can be used here. The device that several of them share goes last.
pub(super) struct Systems {
    pub(super) all: Vec<System>,
    /// Doors that cannot, and why.
    pub(super) skipped: Vec<String>,
    _device: Option<Served>,
}

/// A worker process.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Where it says what is wrong.
    errors: File,
}

impl Process {
    /// Starts it and waits until it is ready.
    fn start(command: &mut Command) -> io::Result<Process> {
        let errors = tempfile::tempfile()?;
        // A group of its own: Ctrl-C is for the one that watches, which ends its workers in order.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.try_clone()?).process_group(0);
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.ok_or_else(|| io::Error::other("a worker without an output"))?);
        let mut process = Process { child, input, output, errors };
        match process.line()?.as_str() {
            "ready" => Ok(process),
            other => Err(io::Error::other(format!("a worker begins with {other:?}"))),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? > 0 {
            return Ok(line.trim_end().to_owned());
        }
        let status = self.child.wait()?;
        let mut said = String::new();
        io::Seek::rewind(&mut self.errors)?;
        io::Read::read_to_string(&mut self.errors, &mut said)?;
        Err(io::Error::other(format!("its worker ended with {status}: {}", said.trim().replace('\n', "; "))))
    }

    fn sample(&mut self, op: Op, time: Duration) -> io::Result<f64> {
        let input = self.input.as_mut().ok_or_else(|| io::Error::other("its worker has no input"))?;
        // One that has ended says why when its answer is read.
        let _ = writeln!(input, "{} {}", op.name(), time.as_millis());
        let line = self.line()?;
        match line.strip_prefix("error ") {
            Some(why) => Err(io::Error::other(why)),
            None => line.parse().map_err(|_| io::Error::other(format!("its worker says {line:?}"))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

impl System {
    /// Whether it has such an operation.
    pub(super) fn takes(&self, op: Op) -> bool {
        self.programs || !op.is_program()
    }

    /// Nanoseconds of one operation.
    pub(super) fn sample(&mut self, op: Op, time: Duration) -> io::Result<f64> {
        self.worker.sample(op, time)
    }
}

/// A mount of a run; goes when dropped.
struct Mount {
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Mount {
    fn make(program: &Path, source: &Path, exclusive: bool) -> io::Result<Mount> {
        let dir = tempfile::Builder::new().prefix("weldfs-bench-mount-").tempdir()?;
        let mut command = Command::new(program);
        command.arg("mount").args(exclusive.then_some("--exclusive")).arg(source).arg(dir.path());
        // The process of the mount keeps no pipe of ours open.
        let errors = tempfile::NamedTempFile::new()?;
        command.env("WELDFS_CONFIG", "").stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.reopen()?);
        if command.status()?.success() {
            return Ok(Mount { program: program.to_owned(), dir });
        }
        let said = std::fs::read_to_string(errors.path())?;
        Err(io::Error::other(said.trim().replace('\n', "; ")))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let umount = |lazy: &[&str]| {
            let mut command = Command::new(&self.program);
            command.arg("umount").args(lazy).arg(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        if !umount(&[]) && !umount(&["--lazy"]) {
            eprintln!("weldfs bench: could not unmount {}", self.dir.path().display());
        }
    }
}

fn image(o: &Options) -> io::Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir_in(&o.dir)?;
    let image = folder.path().join("image");
    let mut mkfs = Command::new(&o.program);
    mkfs.arg("mkfs").arg(&image).args(["--size", SIZE, "--medium", &o.medium]);
    let out = mkfs.stdin(Stdio::null()).output()?;
    if !out.status.success() {
        return Err(io::Error::other(format!("mkfs: {}", String::from_utf8_lossy(&out.stderr).trim())));
    }
    Ok((folder, image))
}

/// How `weldfs` is told the class of changes.
fn class(o: &Options) -> &'static str {
    if o.durable { "durable" } else { "volatile" }
}

impl Systems {
    pub(super) fn start(o: &Options, sets: &Sets, watch: &mut dyn Watch) -> io::Result<Systems> {
        let mut systems = Systems { all: Vec::new(), skipped: Vec::new(), _device: None };
        let wanted = |door: &str| o.doors.is_empty() || o.doors.iter().any(|d| d == door);
        let shared = ["api-served", "preload", "mount"].into_iter().any(wanted);
        if shared {
            watch.at("starting a device process", false);
            let options = ServeOptions {
                medium: MEDIA.into_iter().find(|m| *m == o.medium).unwrap_or(MEDIA[0]),
                size: SIZE.to_owned(),
                place: o.dir.clone(),
                serve_args: vec!["--durability".to_owned(), class(o).to_owned()],
            };
            systems._device = Some(Served::start(&o.program, &options)?);
        }
        for door in DOORS.into_iter().filter(|door| wanted(door) && *door != "host") {
            if watch.stop() {
                return Err(crate::micro::interrupted());
            }
            watch.at(&format!("opening the door {door}"), false);
            let socket = systems._device.as_ref().map(|device| device.socket().to_owned());
            match systems.open(o, sets, door, socket.as_deref()) {
                Ok(()) => {}
                // The host may have no /dev/fuse, or not for this user: every other door is worth its figures.
                Err(e) if door.starts_with("mount") => {
                    systems.skipped.push(format!("{door}: cannot be used here: {e}"))
                }
                Err(e) => return Err(io::Error::new(e.kind(), format!("{door}: {e}"))),
            }
        }
        for peer in o.peers.iter().filter(|_| wanted("host")) {
            watch.at(&format!("preparing {}", peer.dir.display()), false);
            let ground = Ground::of(&peer.dir)?;
            let folder = tempfile::Builder::new().prefix("weldfs-bench-").tempdir_in(&peer.dir)?;
            let worker = worker(o, sets, Command::new(&o.program), "dir", folder.path())?;
            systems.all.push(System {
                name: peer.name.clone(),
                medium: ground.describe(),
                durability: "volatile",
                power_safe: ground.power_safe(),
                programs: true,
                worker,
                _ground: vec![Box::new(folder)],
            });
        }
        Ok(systems)
    }

    fn open(&mut self, o: &Options, sets: &Sets, door: &str, socket: Option<&Path>) -> io::Result<()> {
        let ground = Ground::of(&o.dir)?;
        let plain = || Command::new(&o.program);
        let socket = socket.unwrap_or(Path::new(""));
        let (process, kept): (Process, Vec<Box<dyn std::any::Any>>) = match door {
            "api-inline" => {
                let (folder, image) = image(o)?;
                (worker(o, sets, plain(), "inline", &image)?, vec![Box::new(folder)])
            }
            "api-served" => (worker(o, sets, plain(), "served", socket)?, Vec::new()),
            "preload" => {
                let mut run = plain();
                run.args(["run", "--prefix", PREFIX, "--socket"]).arg(socket).arg("--").arg(&o.program);
                (worker(o, sets, run, "dir", Path::new(PREFIX))?, Vec::new())
            }
            "mount" => {
                let mount = Mount::make(&o.program, socket, false)?;
                // Beside the preloaded worker, in the same device.
                let dir = mount.dir.path().join("mounted");
                std::fs::create_dir(&dir)?;
                (worker(o, sets, plain(), "dir", &dir)?, vec![Box::new(mount)])
            }
            _ => {
                let (folder, image) = image(o)?;
                let mount = Mount::make(&o.program, &image, true)?;
                (worker(o, sets, plain(), "dir", mount.dir.path())?, vec![Box::new(mount), Box::new(folder)])
            }
        };
        self.all.push(System {
            name: door.to_owned(),
            medium: match o.medium.as_str() {
                "pmem" => "emulated pmem".to_owned(),
                _ => format!("block image, {}", ground.describe()),
            },
            // A mount that serves its image by itself has the medium's own default.
            durability: if door == "mount-exclusive" { own_default(&o.medium) } else { class(o) },
            power_safe: o.medium == "block" && ground.power_safe(),
            programs: !door.starts_with("api"),
            worker: process,
            _ground: kept,
        });
        Ok(())
    }
}

/// What is durable without being asked for.
fn own_default(medium: &str) -> &'static str {
    if medium == "pmem" { "durable" } else { "volatile" }
}

fn worker(o: &Options, sets: &Sets, mut command: Command, door: &str, target: &Path) -> io::Result<Process> {
    command.args(&o.worker_args).arg(door).arg(target).arg(sets.archive()).arg(sets.repository());
    command.args(o.durable.then_some("--durable")).args(o.quick.then_some("--quick"));
    Process::start(&mut command)
}
