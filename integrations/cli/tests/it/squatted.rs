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
    // A device that its folder's owner runs there is no stranger, whoever asks.
    chown(place.path(""), Some(65_534), None).expect("chown");
    assert_eq!(ok(weldfs(["ls"]).arg(&theirs)), "");
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
