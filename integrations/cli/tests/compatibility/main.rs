//! Unmodified programs with their files in a device: each script of `tests/scripts` runs in a directory of the host,
//! under `weldfs run` and in mounts, and prints and exits as docs/COMPATIBILITY.md says of it.

mod doors;
#[path = "../mount/rig.rs"]
#[allow(dead_code)] // programs use mounts and nothing else of it
mod rig;
#[path = "../../../../kernel-shim/tests/skips/mod.rs"]
mod skips;
mod table;

use std::time::Duration;

macro_rules! programs {
    (short: $($short:ident)+; long: $($long:ident)+;) => {
        /// Every script that a test runs.
        const SCRIPTS: &[&str] = &[$(stringify!($short),)+ $(stringify!($long)),+];

        $(#[test] fn $short() { doors::compare(stringify!($short), Duration::from_secs(120)); })+

        /// What needs packages that the gate does not install, or minutes.
        mod long {
            use super::*;
            $(
                #[test]
                #[ignore = "long: ./test compatibility"]
                fn $long() { doors::compare(stringify!($long), Duration::from_secs(600)); }
            )+
        }
    };
}

programs! {
    short:
        bash_features cp_sparse cross_boundary dd_sort descriptor_names ed exec_inside file_size_limit files
        find_xargs_grep gcc_make git job_control lmdb mapped_files python_files python_libs python_mmap python_sqlite
        python_venv rsync shared_library shell_redirections sqlite sqlite_wal static_program stress_ng tar_small uring
        vim;
    long:
        archives borg cargo cargo_macro cargo_test cmake_ninja emacs ffmpeg fio_engines fio_psync go interpreters java
        java_mmap mariadb nginx node postgres python_pip redis restic;
}
