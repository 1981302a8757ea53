//! A neighbour on a directory of the host: programs that compute, paths that are long, and what they keep from others.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs::{At, Client, Errno, OpenFlags, Queue};
use weldfs_ciscops::program::text::parse;
use weldfs_ciscops::{Command, Op};
use weldfs_fs::Cred;
use weldfs_kernel_shim::EmbeddedDir;

const CREATE: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE);

fn served(dir: &Path) -> EmbeddedDir {
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o777)).unwrap();
    EmbeddedDir::open(dir).unwrap()
}

/// A client of its own; of another user where this process may serve any.
fn user(served: &EmbeddedDir, uid: u32) -> Client {
    let mut cred = Cred::root();
    (cred.uid, cred.gid) = (uid, uid);
    let served = if rustix::process::geteuid().is_root() { served.acting_as(cred) } else { served.clone() };
    Client::with(Arc::new(served)).unwrap()
}

/// Bytes that take a codec its time.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 & 63
    };
    (0..len).map(|_| next()).collect()
}

fn put(dir: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(dir.join(name), bytes).unwrap();
    std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(0o666)).unwrap();
}

fn submit(queue: &mut Queue, text: &str) -> weldfs::Ticket {
    let body = parse(text, &[]).unwrap_or_else(|e| panic!("{text}: {e}")).body.bind(&[]).unwrap();
    let body = queue.stage(&body).unwrap();
    let ticket = queue.submit(&Command::new(0, Op::Program { body })).unwrap();
    queue.flush();
    ticket
}

fn run(client: &Client, text: &str) -> Result<(u64, u64), Errno> {
    let mut queue = client.queue(8, 1 << 20).unwrap();
    let ticket = submit(&mut queue, text);
    queue.wait(ticket).unwrap().ok()
}

#[test]
fn programs_that_compute_keep_neither_names_nor_files_from_others() {
    const AHEAD: usize = 12;
    let steps = "compress zstd a -> b;".repeat(8);
    let read = "open /input r as i; read i 0 1000k -> a;";
    // They compute before they do anything, or after; with what was there, or with what they wrote themselves.
    let kinds = [
        |n: usize, read: &str, steps: &str| format!("{read} {steps} mkdir /made{n}"),
        |n: usize, read: &str, steps: &str| format!("mkdir /made{n}; {read} {steps} unlink /not-there"),
        |n: usize, read: &str, steps: &str| {
            format!("{read} open /made{n} rw create as o; write o 0 a; read o 0 1000k -> a; {steps} unlink /not-there")
        },
    ];
    for (kind, text) in kinds.iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let served = served(dir.path());
        put(dir.path(), "input", &noise(1_000 << 10));
        let neighbour = user(&served, 1000);
        let mut queue = neighbour.queue(64, 1 << 20).unwrap();
        let start = Instant::now();
        let first = submit(&mut queue, &text(0, read, &steps));
        queue.wait(first).unwrap();
        let one = start.elapsed();
        let tickets: Vec<_> = (1..=AHEAD).map(|n| submit(&mut queue, &text(n, read, &steps))).collect();
        let victim = user(&served, 1001);
        let mut took = Vec::new();
        let start = Instant::now();
        while start.elapsed() < one * AHEAD as u32 / 4 {
            let look = Instant::now();
            victim.metadata("/input").unwrap();
            victim.open_write_close("/mine", CREATE, 0o600, At::Offset(0), b"x").unwrap();
            victim.open_write_close("/input", OpenFlags::WRITE, 0, At::End, b"").unwrap();
            took.push(look.elapsed());
            victim.remove_file("/mine").unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        took.sort_unstable();
        let middle = took[took.len() / 2];
        assert!(middle < one / 8, "kind {kind}: {middle:?} of {} looks, beside programs of {one:?}", took.len());
        for ticket in tickets {
            let end = queue.wait(ticket).unwrap().ok();
            assert!(matches!(end, Ok(_) | Err(Errno::NOENT)), "kind {kind}: {end:?}");
        }
        (0..=AHEAD).for_each(|n| assert!(dir.path().join(format!("made{n}")).exists(), "kind {kind}: {n}"));
    }
}

#[test]
fn a_step_that_computes_for_long_ends_although_others_wait_for_its_thread() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    // A step of it is longer than a slice.
    put(dir.path(), "input", &noise(1_000 << 10));
    let (ended, ends) = std::sync::mpsc::channel();
    for n in 0..8 {
        let (client, ended) = (user(&served, 1000 + n), ended.clone());
        std::thread::spawn(move || {
            let text = "open /input r as i; read i 0 1000k -> a; compress zstd a -> b; compress zstd a -> b";
            ended.send(run(&client, text).map(drop)).unwrap();
        });
    }
    for _ in 0..8 {
        let end = ends.recv_timeout(Duration::from_secs(120)).expect("steps that are cut begin anew for ever");
        assert_eq!(end, Ok(()));
    }
}

#[test]
fn what_a_program_computes_with_is_so_when_it_writes() {
    const EACH: u64 = 20;
    const QUICK: u64 = 150;
    let work = "open /input r as i; read i 0 256k -> a; compress zstd a -> b; close i;";
    let add = |between: &str| {
        format!(
            "open /count rw as c; read c 0 8 -> n; load n 0 u64le -> v; {between} let v = v + 1; write c 0 v:u64le; \
             close c; result v none"
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    put(dir.path(), "count", &[0; 8]);
    put(dir.path(), "input", &noise(256 << 10));
    std::thread::scope(|s| {
        s.spawn(|| {
            let other = user(&served, 1001);
            for _ in 0..QUICK {
                run(&other, &add("")).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let one = user(&served, 1000);
        for _ in 0..EACH {
            run(&one, &add(work)).unwrap();
        }
    });
    let count = std::fs::read(dir.path().join("count")).unwrap();
    assert_eq!(count, (EACH + QUICK).to_le_bytes(), "no increment is lost");
    // And what is compressed is what is there when it is written.
    std::thread::scope(|s| {
        let other = s.spawn(|| {
            for n in 0..200u64 {
                let bytes = vec![n as u8; 100 << 10];
                user(&served, 1001).open_write_close("/input", OpenFlags::WRITE, 0, At::Offset(0), &bytes).unwrap();
            }
        });
        let one = user(&served, 1000);
        while !other.is_finished() {
            let text = "buffer a 100k; open /input r as i; read i 0 100k -> a; crc32c a -> s; compress zstd a -> b; \
                        decompress zstd b -> a; crc32c a -> t; result s t";
            match run(&one, text) {
                Ok((s, t)) => assert_eq!(s, t),
                // It never stays.
                Err(e) => assert_eq!(e, Errno::AGAIN),
            }
        }
    });
}

#[test]
fn what_follows_a_program_that_computes_in_its_ring_comes_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    put(dir.path(), "input", &noise(256 << 10));
    let mine = user(&served, 1000);
    let mut queue = mine.queue(16, 1 << 20).unwrap();
    for round in 0..20u8 {
        put(dir.path(), "log", b"");
        let long = format!(
            "open /log rw append as l; open /input r as i; read i 0 256k -> a; compress zstd a -> b; \
             append l x\"{round:02x}\""
        );
        let tickets = [submit(&mut queue, &long), submit(&mut queue, "open /log rw append; append x\"ff\"")];
        for ticket in tickets {
            queue.wait(ticket).unwrap().ok().unwrap();
        }
        assert_eq!(std::fs::read(dir.path().join("log")).unwrap(), [round, 0xff]);
    }
}

#[test]
fn a_program_that_computes_much_with_what_only_its_own_changes_make_is_refused_there() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    std::fs::create_dir(dir.path().join("d")).unwrap();
    put(&dir.path().join("d"), "small", &noise(1000));
    put(&dir.path().join("d"), "large", &noise(200 << 10));
    // The rehearsal does not know that the directory has another name then.
    let text = |n: &str| format!("rename d e; open e/{n} r; buffer b 64k; read 0 200k -> a; compress lz4 a -> b");
    let client = Client::with(Arc::new(served.clone())).unwrap();
    let small = text("small").replace("200k", "1000");
    run(&client, &small).unwrap();
    std::fs::rename(dir.path().join("e"), dir.path().join("d")).unwrap();
    assert_eq!(run(&client, &text("large").replace("64k", "300k")), Err(Errno::OPNOTSUPP));
    assert!(dir.path().join("e/large").exists(), "what came before it stands");
    // Content and names that it sees through are no matter.
    let through = "open /new rw create as n; open e/large r as l; read l 0 200k -> a; write n 0 a; rename /new /other; \
                   open /other rw as o; read o 0 200k -> b; compress zstd b -> c; let z = 1; result z none";
    assert_eq!(run(&client, through), Ok((1, 0)));
}

#[test]
fn paths_of_a_command_have_so_many_components_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let served = served(dir.path());
    std::fs::create_dir(dir.path().join("d")).unwrap();
    put(&dir.path().join("d"), "f", b"found");
    let turns = "d/../".repeat(700);
    for i in 0..39 {
        let last = if i == 38 { "d".to_owned() } else { format!("l{}", i + 1) };
        symlink(format!("{turns}{last}"), dir.path().join(format!("l{i}"))).unwrap();
    }
    symlink(format!("/{turns}d/f"), dir.path().join("file")).unwrap();
    let client = Client::with(Arc::new(served.clone())).unwrap();
    // One and two of 1,400, by every kind of call; three are too many.
    assert_eq!(client.read("/l38/f").unwrap(), b"found");
    assert_eq!(client.read("/file").unwrap(), b"found");
    assert_eq!(client.metadata("/l37/f").unwrap().len(), 5);
    client.rename("/l38/f", "/l38/../d/g").unwrap();
    client.rename("/d/g", "/l38/f").unwrap();
    client.symlink("x", "/l38/s").unwrap();
    assert_eq!(client.read_link("/l38/s").unwrap().into_os_string(), "x");
    client.write("/l38/new", b"made").unwrap();
    client.write("/l38/new", b"again").unwrap();
    client.hard_link("/l38/new", "/other").unwrap();
    client.remove_file("/l38/new").unwrap();
    client.set_permissions("/file", 0o600).unwrap();
    let refused = |e: std::io::Result<()>| assert_eq!(e.map_err(|e| e.raw_os_error()), Err(Some(libc::ELOOP)));
    refused(client.metadata("/l36/f").map(drop));
    refused(client.read("/l0/f").map(drop));
    refused(client.rename("/l37/f", "/l38/g"));
    refused(client.create("/l0/f").map(drop));
    refused(client.remove_file("/l0/f"));
    refused(client.metadata("/l36").map(drop));
    assert_eq!(run(&client, "unlink /l38/s; unlink /l37/f; unlink /l38/f").err(), Some(Errno::LOOP));
    assert!(!dir.path().join("d/s").exists() && dir.path().join("d/f").exists());
    // A file at the end of links, also of one that leads nowhere yet.
    symlink("d/later", dir.path().join("nowhere")).unwrap();
    client.write("/nowhere", b"made").unwrap();
    assert_eq!(std::fs::read(dir.path().join("d/later")).unwrap(), b"made");
    let err = |r: std::io::Result<()>| r.err().and_then(|e| e.raw_os_error());
    symlink("again", dir.path().join("again")).unwrap();
    assert_eq!(err(client.read("/again").map(drop)), Some(libc::ELOOP));
    assert_eq!(err(client.read("/file/x").map(drop)), Some(libc::ENOTDIR));
}

#[test]
fn a_long_way_to_a_link_is_not_gone_on_by_what_must_make_a_name_there() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let served = served(dir.path());
    let client = user(&served, 0);
    std::fs::create_dir(at("d")).unwrap();
    symlink("d/y", at("l")).unwrap();
    let long = format!("{}l", "d/../".repeat(100));
    for open in [format!("open {long} rw create excl"), format!("open {long} r; open {long} rw create excl")] {
        let done = run(&client, &open);
        assert!(matches!(done, Err(Errno::EXIST | Errno::NOENT)), "{open}: {done:?}");
        assert!(!at("d/y").exists(), "{open}");
    }
    std::fs::write(at("d/y"), b"there").unwrap();
    let both = format!("open {long} r as a; size a -> n; open {long} rw create excl");
    assert_eq!(run(&client, &both), Err(Errno::EXIST));
    assert_eq!(run(&client, &format!("open {long} r nofollow")), Err(Errno::LOOP));
    assert_eq!(run(&client, &format!("open {long} r; open {long} r nofollow")), Err(Errno::LOOP));
}
