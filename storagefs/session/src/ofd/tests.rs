//! Tests of open file descriptions.

use super::*;
use crate::locks::Span;

/// Another thread's regular look once took a description off the list before it had released its locks: a request
/// between the two was told that the lock's owner was still there.
#[test]
fn a_lock_is_free_when_its_placeholder_is_gone_whatever_other_threads_look_at() {
    // In a process of its own: the children of other tests have a copy of each descriptor until their exec.
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let ran = alone.args(["--exact", "ofd::tests::with_others_that_look", "--ignored"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
#[ignore = "run by a_lock_is_free_when_its_placeholder_is_gone_whatever_other_threads_look_at"]
fn with_others_that_look() {
    let files = OpenFiles::<u8>::new(4);
    let tenant = Tenant::alone();
    let payer: Arc<dyn Payer> = tenant.clone();
    let ends = AtomicBool::new(false);
    let want = |owner| Held { owner, tenant: 0, span: Span::ALL, exclusive: true };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    files.sweep();
                }
            });
        }
        let mut refused = 0;
        for round in 0..2000 {
            let handles = Handles::new(1, tenant.clone());
            let (id, sent) = handles.placeholders(1).unwrap().pop().unwrap();
            let owner = {
                let description = files.describe(InodeNo::ROOT, OpenFlags::READ, 0).unwrap();
                files.bind(handles.take_placeholder(id).unwrap(), &description);
                let handle = handles.reserve().unwrap();
                let owner = Owner::File(description.id);
                handles.fill(handle, description);
                owner
            };
            files.lock(InodeNo::ROOT, Space::Whole, want(owner), &payer).unwrap();
            // The session ends before its descriptor does, or after it.
            if round % 2 == 0 {
                assert!(handles.close_all(), "held");
                drop(sent);
            } else {
                drop(sent);
                handles.close_all();
            }
            let mine = want(Owner::File(u64::MAX));
            refused += u32::from(files.lock(InodeNo::ROOT, Space::Whole, mine, &payer).is_err());
            files.locks.release(InodeNo::ROOT, |_| true);
        }
        ends.store(true, Ordering::Relaxed);
        assert_eq!(refused, 0);
    });
    assert_eq!((files.sweep(), files.open(), files.alone.lock().len(), files.bound.lock().len()), (0, 0, 0, 0));
}
