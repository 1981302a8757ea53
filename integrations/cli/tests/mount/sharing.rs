//! Several sessions and users on the same files: the device decides, and what one changes the other sees at once.

use crate::rig::{NOBODY, Place, Served, fails, ok, shell_as, usable, weldfs};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};

#[test]
fn what_another_session_changes_is_seen_at_once() {
    if !usable("what_another_session_changes_is_seen_at_once") {
        return;
    }
    let place = Place::new("64M");
    let mounted = place.mount(&[]);
    let put = |text: &str| {
        fs::write(place.path("host"), text).expect("write");
        ok(weldfs(["put"]).arg(place.path("host")).arg(place.inside("/f")));
    };
    for round in 0..20 {
        put(&format!("round {round}"));
        assert_eq!(fs::read_to_string(place.at("f")).expect("read"), format!("round {round}"));
    }
    let text = format!("longer by {}", "x".repeat(100_000));
    put(&text);
    assert_eq!(fs::metadata(place.at("f")).expect("stat").len(), text.len() as u64);
    assert_eq!(fs::read_to_string(place.at("f")).expect("read"), text);
    ok(weldfs(["mv"]).args([place.inside("/f"), place.inside("/g")]));
    assert!(!place.at("f").exists() && place.at("g").exists());
    ok(weldfs(["chmod", "600"]).arg(place.inside("/g")));
    assert_eq!(fs::metadata(place.at("g")).expect("stat").mode() & 0o777, 0o600);
    // And the other way round.
    fs::write(place.at("new"), "from the mount").expect("write");
    assert_eq!(ok(weldfs(["cat"]).arg(place.inside("/new"))), "from the mount");
    ok(weldfs(["rm"]).arg(place.inside("/new")));
    assert!(fs::metadata(place.at("new")).is_err());
    mounted.unmount();
    place.is_clean();
}

/// The kernel took the time that its own change was answered with for one that it knew, and kept pages of what another
/// session had cut off.
#[test]
fn what_another_session_cut_off_does_not_come_back_with_a_change_at_the_mount() {
    if !usable("what_another_session_cut_off_does_not_come_back_with_a_change_at_the_mount") {
        return;
    }
    let place = Place::new("64M");
    let mounted = place.mount(&[]);
    for round in 1..=20u64 {
        let name = format!("f{round}");
        fs::write(place.at(&name), vec![7; 20_480]).expect("write");
        let file = fs::OpenOptions::new().read(true).write(true).open(place.at(&name)).expect("open");
        let mut found = vec![0; 20_480];
        file.read_exact_at(&mut found, 0).expect("read");
        ok(weldfs(["truncate", "--size", "3512"]).arg(place.inside(&format!("/{name}"))));
        file.set_len(20_480).expect("ftruncate");
        file.read_exact_at(&mut found, 0).expect("read");
        let kept = found.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        assert_eq!((kept, file.metadata().expect("stat").len()), (3512, 20_480), "round {round}");
        // Of the same length, and other bytes.
        ok(weldfs(["truncate", "--size", "0"]).arg(place.inside(&format!("/{name}"))));
        ok(weldfs(["truncate", "--size", "20480"]).arg(place.inside(&format!("/{name}"))));
        file.set_permissions(fs::Permissions::from_mode(0o640)).expect("fchmod");
        file.read_exact_at(&mut found, 0).expect("read");
        assert!(found.iter().all(|b| *b == 0), "round {round}");
        // What it told the kernel is not what it tells anyone else.
        let (held, named) = (file.metadata().expect("stat"), fs::metadata(place.at(&name)).expect("stat"));
        assert_eq!((held.mtime(), held.mtime_nsec()), (named.mtime(), named.mtime_nsec()));
    }
    mounted.unmount();
    place.is_clean();
}

#[test]
fn a_directory_that_another_session_renames_stays_the_same_directory() {
    if !usable("a_directory_that_another_session_renames_stays_the_same_directory") {
        return;
    }
    let place = Place::new("64M");
    let mounted = place.mount(&[]);
    fs::create_dir_all(place.at("old/sub")).expect("mkdir");
    // A process stands in it, while a stranger takes its name.
    let script = format!(
        "cd {root}/old/sub && echo 1 > one && {weldfs} mv {old} {new} && {weldfs} mkdir {old} {old}/sub && \
         echo 2 > two && ls",
        root = place.root().display(),
        weldfs = crate::rig::BINARY,
        old = place.inside("/old"),
        new = place.inside("/new"),
    );
    assert_eq!(ok(&mut shell_as(0, "", &script)), "one\ntwo\n");
    assert!(place.at("new/sub/two").exists() && !place.at("old/sub/two").exists());
    mounted.unmount();
}

#[test]
fn two_mounts_of_one_device_agree() {
    if !usable("two_mounts_of_one_device_agree") {
        return;
    }
    let place = Place::new("64M");
    let served = Served::start(&place);
    let one = place.mount(&[]);
    let second = place.path("second");
    fs::create_dir(&second).expect("mkdir");
    ok(weldfs(["mount"]).arg(place.image()).arg(&second));
    let (a, b) = (place.at("log"), second.join("log"));
    let open = |path: &std::path::Path| fs::File::options().append(true).create(true).open(path).expect("open");
    let (mut first, mut other) = (open(&a), open(&b));
    for i in 0..200 {
        writeln!(first, "a{i}").expect("append");
        writeln!(other, "b{i}").expect("append");
    }
    for path in [&a, &b] {
        let mut text = String::new();
        fs::File::open(path).expect("open").read_to_string(&mut text).expect("read");
        assert_eq!(text.lines().count(), 400, "appends of two mounts replace each other's");
    }
    // A lock of one is a lock for the other.
    let flock = |path: &std::path::Path| {
        let file = fs::File::open(path).expect("open");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map(|()| file)
    };
    let held = flock(&a).expect("free");
    assert_eq!(flock(&b).expect_err("held"), rustix::io::Errno::AGAIN);
    drop(held);
    crate::rig::until("the lock", || flock(&b).is_ok());
    drop((first, other));
    ok(weldfs(["umount"]).arg(&second));
    one.unmount();
    served.stop();
    place.is_clean();
}

#[test]
fn each_caller_has_his_own_rights() {
    if !usable("each_caller_has_his_own_rights") {
        return;
    }
    for alone in [false, true] {
        let place = Place::new("64M");
        let mounted = place.mount(if alone { &["--allow-other", "--exclusive"] } else { &["--allow-other"] });
        let root = place.root().display().to_string();
        let private = place.at("private");
        fs::create_dir(&private).expect("mkdir");
        fs::write(private.join("f"), "secret").expect("write");
        fs::set_permissions(&private, PermissionsExt::from_mode(0o700)).expect("chmod");
        // Also where the kernel knows the names already.
        assert!(private.join("f").exists());
        let (_, why) = fails(&mut shell_as(NOBODY, "", &format!("cat {root}/private/f")));
        assert!(why.contains("Permission denied"), "{why}");
        let (_, why) = fails(&mut shell_as(NOBODY, "", &format!("echo x > {root}/new")));
        assert!(why.contains("Permission denied"), "{why}");
        fs::set_permissions(place.root(), PermissionsExt::from_mode(0o1777)).expect("chmod");
        ok(&mut shell_as(
            1234,
            "",
            &format!("cd {root} && umask 077 && echo mine > mine && mkdir dir && ln -s mine link"),
        ));
        let meta = fs::metadata(place.at("mine")).expect("stat");
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (1234, 1234, 0o600));
        let (_, why) = fails(&mut shell_as(NOBODY, "", &format!("rm -f {root}/mine")));
        assert!(why.contains("not permitted"), "sticky: {why}");
        let (_, why) = fails(&mut shell_as(NOBODY, "", &format!("chmod 777 {root}/mine")));
        assert!(why.contains("not permitted"), "{why}");
        // By a group that only /proc tells.
        fs::write(place.at("team"), "for the team").expect("write");
        chown(place.at("team"), None, Some(4321)).expect("chown");
        fs::set_permissions(place.at("team"), PermissionsExt::from_mode(0o640)).expect("chmod");
        let read = format!("cat {root}/team");
        assert_eq!(ok(&mut shell_as(NOBODY, "4321", &read)), "for the team");
        let (_, why) = fails(&mut shell_as(NOBODY, "9", &read));
        assert!(why.contains("Permission denied"), "{why}");
        mounted.unmount();
        place.is_clean();
    }
}

#[test]
fn without_allow_other_only_the_one_who_mounts_gets_in() {
    if !usable("without_allow_other_only_the_one_who_mounts_gets_in") {
        return;
    }
    let place = Place::new("64M");
    let mounted = place.mount(&[]);
    let (_, why) = fails(&mut shell_as(NOBODY, "", &format!("ls {}", place.root().display())));
    assert!(why.contains("Permission denied"), "{why}");
    mounted.unmount();
}
