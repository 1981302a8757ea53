//! A socket where that of an image's device would be, and another device behind it: no verb gives it anything.

use crate::life::{Place, Running, as_nobody, is_root, ok, refused, serve, weldfs};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Stdio;

/// A folder like /tmp with an image in it, and a file that is for the caller only.
fn folder() -> Place {
    let place = Place::new();
    place.image();
    fs::write(place.path("secret"), b"hunter2").expect("written");
    fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o1777)).expect("chmod");
    place
}

#[test]
fn what_is_put_into_an_image_does_not_go_to_another_user_who_has_taken_its_socket() {
    if !is_root() {
        return crate::skips::skip(
            "what_is_put_into_an_image_does_not_go_to_another_user_who_has_taken_its_socket",
            "it needs root",
        );
    }
    let place = folder();
    let (image, socket) = (place.path("a.img"), place.path("a.img.sock"));
    let squat = weldfs(["serve", "--ram=32M", "--socket", socket.to_str().expect("text")]);
    let mut other = as_nobody(&squat);
    let _squatter = Running::start(other.stderr(Stdio::null()));
    let mut wait = as_nobody(&weldfs(["wait", socket.to_str().expect("text")]));
    ok(&mut wait);

    let at = format!("{}:/secret", image.display());
    ok(weldfs(["put"]).arg(place.path("secret")).arg(&at));
    let theirs = format!("{}:/", socket.display());
    assert_eq!(ok(&mut as_nobody(&weldfs(["ls", &theirs]))), "", "nothing has come to the other user");
    assert_eq!(ok(weldfs(["cat"]).arg(&at)), "hunter2", "it is in the image");

    // By its path the socket is no better: it lies where anyone may put one.
    let (code, said) = refused(weldfs(["put"]).arg(place.path("secret")).arg(format!("{theirs}secret")));
    assert!(code == Some(1) && said.contains("another user"), "{code:?}: {said}");
    assert_eq!(ok(&mut as_nobody(&weldfs(["ls", &theirs]))), "");
}

/// The folder of a run that is over may be made by any user, with a device in it for the programs that the run left.
#[test]
fn a_folder_that_another_user_has_made_where_all_may_is_no_better_than_a_socket_there() {
    const NAME: &str = "a_folder_that_another_user_has_made_where_all_may_is_no_better_than_a_socket_there";
    if !is_root() {
        return crate::skips::skip(NAME, "it needs root");
    }
    let place = folder();
    let theirs = place.path("weldfs-run-x");
    fs::create_dir(&theirs).expect("mkdir");
    fs::set_permissions(&theirs, PermissionsExt::from_mode(0o755)).expect("chmod");
    chown(&theirs, Some(65_534), None).expect("chown");
    let socket = theirs.join("weldfs.sock");
    let squat = weldfs(["serve", "--ram=32M", "--socket", socket.to_str().expect("text")]);
    let _squatter = Running::start(as_nobody(&squat).stderr(Stdio::null()));
    ok(&mut as_nobody(&weldfs(["wait", socket.to_str().expect("text")])));
    let at = format!("{}:/secret", socket.display());
    let put = || {
        let mut put = weldfs(["put"]);
        put.arg(place.path("secret")).arg(&at);
        put
    };
    let (code, said) = refused(&mut put());
    assert!(code == Some(1) && said.contains("another user"), "{code:?}: {said}");
    // Nor by a link that leads there, from a folder of one's own.
    let own = Place::new();
    std::os::unix::fs::symlink(&socket, own.path("sock")).expect("a link");
    let by_link = format!("{}:/secret", own.path("sock").display());
    assert_eq!(refused(weldfs(["put"]).arg(place.path("secret")).arg(by_link)).0, Some(1));
    // To a program of a run that was this user's it is no device at all.
    let here = std::path::Path::new(env!("CARGO_BIN_EXE_weldfs")).parent().expect("a folder");
    let library = here.join("deps/libweldfs_preload.so");
    let run = |user: &str| {
        let mut program = std::process::Command::new("cp");
        program.arg(place.path("secret")).arg("/weld/secret").env("LD_PRELOAD", &library).env("WELDFS_SOCKET", &socket);
        program.env("WELDFS_PREFIX", "/weld").env("WELDFS_DEVICE_USER", user);
        program
    };
    let (code, said) = refused(&mut run("0"));
    assert!(code == Some(1) && said.contains("not permitted"), "{code:?}: {said}");
    let (_, said) = refused(&mut run("root"));
    assert!(said.contains("WELDFS_DEVICE_USER must be a user's number"), "{said}");
    let listed = || ok(&mut as_nobody(&weldfs(["ls", &format!("{}:/", socket.display())])));
    assert_eq!(listed(), "", "nothing has come to the other user");
    // Whoever is told the user, too, means that one.
    ok(put().env("WELDFS_DEVICE_USER", "65534"));
    assert_eq!(listed(), "secret\n");
    assert_eq!(refused(put().env("WELDFS_DEVICE_USER", "65533")).0, Some(1));
}

/// A device of another user in a folder where only that one can have put it: by its path it is believed, but not by a
/// link that a third one can have made.
#[test]
fn a_link_that_any_user_can_have_made_leads_to_no_strangers_device() {
    const NAME: &str = "a_link_that_any_user_can_have_made_leads_to_no_strangers_device";
    if !is_root() {
        return crate::skips::skip(NAME, "it needs root");
    }
    let (place, open) = (Place::new(), folder());
    let theirs = place.path("theirs");
    fs::create_dir(&theirs).expect("mkdir");
    chown(&theirs, Some(65_534), None).expect("chown");
    let socket = theirs.join("sock");
    let serve = weldfs(["serve", "--ram=32M", "--socket", socket.to_str().expect("text")]);
    let _device = Running::start(as_nobody(&serve).stderr(Stdio::null()));
    ok(&mut as_nobody(&weldfs(["wait", socket.to_str().expect("text")])));
    assert_eq!(ok(weldfs(["ls"]).arg(format!("{}:/", socket.display()))), "");
    // Nor is it a stranger's where all may put sockets, if the folder is that user's.
    fs::set_permissions(&theirs, PermissionsExt::from_mode(0o1777)).expect("chmod");
    assert_eq!(ok(weldfs(["ls"]).arg(format!("{}:/", socket.display()))), "");
    let link = open.path("link");
    std::os::unix::fs::symlink(&socket, &link).expect("a link");
    let by_link = || format!("{}:/", link.display());
    assert_eq!(ok(weldfs(["ls"]).arg(by_link())), "", "of one's own");
    // The folder is a link, too, and its last part leads up and down again.
    std::os::unix::fs::symlink("theirs/../theirs", place.path("more")).expect("a link");
    assert_eq!(ok(weldfs(["ls"]).arg(format!("{}/./sock:/", place.path("more").display()))), "");
    std::os::unix::fs::lchown(&link, Some(65_533), None).expect("chown");
    let (code, said) = refused(weldfs(["ls"]).arg(by_link()));
    // (Where the kernel itself does not follow such links, it says so.)
    assert!(code == Some(1) && (said.contains("another user") || said.contains("denied")), "{code:?}: {said}");
}

#[test]
fn a_device_of_another_file_system_is_not_the_devices_of_the_image_it_lies_beside() {
    let place = folder();
    let (image, socket) = (place.path("a.img"), place.path("a.img.sock"));
    let other = place.path("b.img");
    ok(weldfs(["mkfs", "--size=48M"]).arg(&other));
    let device = serve(&other, &["--socket", socket.to_str().expect("text")]);
    let at = format!("{}:/secret", image.display());
    ok(weldfs(["put"]).arg(place.path("secret")).arg(&at));
    assert_eq!(ok(weldfs(["ls"]).arg(format!("{}:/", other.display()))), "");
    assert_eq!(ok(weldfs(["cat"]).arg(&at)), "hunter2");
    drop(device);
}

#[test]
fn the_holder_of_an_images_lock_is_not_its_device_if_it_is_another_user() {
    if !is_root() {
        return crate::skips::skip(
            "the_holder_of_an_images_lock_is_not_its_device_if_it_is_another_user",
            "it needs root",
        );
    }
    let place = folder();
    let image = place.path("a.img");
    // May be read and written by all, is root's, and the other user is the first to serve it.
    fs::set_permissions(&image, PermissionsExt::from_mode(0o666)).expect("chmod");
    let socket = place.path("theirs");
    let mut theirs = as_nobody(&weldfs(["serve", "--socket", socket.to_str().expect("text")]));
    let _device = Running::start(theirs.arg(&image).stderr(Stdio::null()));
    ok(&mut as_nobody(&weldfs(["wait", image.to_str().expect("text")])));
    let (code, said) = refused(weldfs(["put"]).arg(place.path("secret")).arg(format!("{}:/secret", image.display())));
    assert!(code == Some(1) && said.contains("another user"), "{code:?}: {said}");
    // Its owner, once it is theirs, has no objection.
    chown(&image, Some(65_534), None).expect("chown");
    ok(weldfs(["ls"]).arg(format!("{}:/", image.display())));
}
