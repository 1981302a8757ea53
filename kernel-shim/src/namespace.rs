//! A mount namespace for this process and what it starts.

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::UnshareFlags;

/// Gives the calling thread a mount namespace of its own: what it mounts from now on is seen by it, the threads and
/// the processes that it starts, and ends with the last of them. What the host mounts later is seen there, too. To be
/// called before other threads are started: each would stay where it is.
///
/// Errors: EPERM without CAP_SYS_ADMIN; EINVAL where `/` is no mount (a chroot), and then the namespace is another one
/// already, but mounts may be seen on the host: nothing is to be mounted.
pub fn separate_mounts() -> Result<(), Errno> {
    // SAFETY: the call is unsafe for what it can do to tables of descriptors that threads share. Only the namespace of
    // mounts is made new: it holds no memory and no descriptor, and a path that is resolved afterwards by this thread
    // finds the same files as before.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_one_thread_are_not_seen_by_the_others() {
        let of = |task: &str| std::fs::read_link(format!("/proc/{task}/ns/mnt")).unwrap();
        let before = of("thread-self");
        let made = std::thread::spawn(move || separate_mounts().map(|()| of("thread-self"))).join().unwrap();
        match made {
            Ok(own) => assert_ne!(own, before),
            Err(e) => assert_eq!(e, Errno::PERM),
        }
        assert_eq!(of("thread-self"), before);
    }
}
