//! HLS C++, compiled as programs, against the oracles and the references. `fpga/hls/build.py` makes the shared objects.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weldfs_fpga::kernel::{Kernel, run};

use crate::checks::{self, same, scattered};
use crate::shared_object::{SharedObject, folder};
use crate::subjects::{SUBJECTS, Subject};

/// Rounds of a comparison: more of them in the long form of the tests.
fn rounds() -> u64 {
    std::env::var("WELDFS_HLS_ROUNDS").map_or(6, |n| n.parse().expect("a number"))
}

fn open(subject: &Subject) -> SharedObject {
    SharedObject::open(&folder().join(format!("libhls_{}.so", subject.name))).unwrap()
}

/// Every length and cut, and several packets with the same parameters.
fn lengths(subject: &Subject) {
    checks::cases(subject, &mut open(subject), 0..8, 2, 1);
}

/// The same when a side stalls at random clocks, or both do.
fn stalls(subject: &Subject) {
    let mut kernel = open(subject);
    for (seed, input, output) in [(1, 500, 0), (2, 0, 500), (3, 400, 400), (4, 900, 100), (5, 100, 900)] {
        assert!(kernel.stall(seed, input, output));
        checks::cases(subject, &mut kernel, 0..4, seed, 7);
    }
}

fn parameters(subject: &Subject) {
    checks::parameters(subject, &mut open(subject));
}

/// Longer packets than an oracle is quick for; debug ports, too.
fn long_packets(subject: &Subject) {
    let mut reference = crate::builtin(subject.name);
    let mut kernel = open(subject);
    for seed in 0..rounds() {
        let mut rng = SmallRng::seed_from_u64(seed);
        let params = (subject.params)(rng.random_range(0..64), &mut rng);
        reference.reset(&params).unwrap();
        kernel.reset(&params).unwrap();
        let stalls = rng.random_range(0..2);
        assert!(kernel.stall(seed * stalls, rng.random_range(0..950), rng.random_range(0..950)));
        for packet in 0..3 {
            // A kernel's work for a unit may be much, however short that is.
            let len = rng.random_range(0..300_000.min(200 * (subject.unit)(&params)));
            let input = (subject.input)(&params, len, &mut rng);
            let (expected, _) = run(&mut *reference, &input, 10_000, 10_000).unwrap();
            let what = || format!("{}, seed {seed}, packet {packet} of {len} bytes", subject.name);
            same(&run(&mut kernel, &input, 8_191, 4_093).unwrap().0, &expected, what);
            for port in 0..4 {
                assert_eq!(kernel.peek(port), reference.peek(port), "{}, port {port}", what());
            }
        }
    }
}

/// Two objects of one library share nothing.
fn side_by_side(subject: &Subject) {
    let mut rng = SmallRng::seed_from_u64(9);
    let mut kernels = [open(subject), open(subject)];
    let mut expected = Vec::new();
    for kernel in &mut kernels {
        let params = (subject.params)(3, &mut rng);
        let input = (subject.input)(&params, 3000, &mut rng);
        kernel.reset(&params).unwrap();
        let step = kernel.step(&input[..1000], false, &mut [0; 10]).unwrap();
        expected.push(((subject.oracle)(&params, &input), input, step));
    }
    for (kernel, (expected, input, step)) in kernels.iter_mut().zip(expected) {
        let rest = scattered(kernel, &input[step.taken..], &mut rng).unwrap();
        same(&rest, &expected[step.made..], || subject.name.into());
    }
}

/// The checks above for one kernel; each is a test, so that they run side by side.
macro_rules! kernel {
    ($module:ident, $name:literal: $($check:ident),*) => {
        mod $module {
            $(
                #[test]
                #[ignore = "needs what fpga/hls/build.py makes"]
                fn $check() {
                    super::$check(super::SUBJECTS.iter().find(|s| s.name == $name).unwrap());
                }
            )*
        }
    };
}

kernel!(convolve, "convolve": lengths, stalls, parameters, long_packets, side_by_side);
kernel!(equalise, "equalise": lengths, stalls, parameters, long_packets, side_by_side);
kernel!(gzip, "gzip": lengths, stalls, parameters, long_packets, side_by_side);
kernel!(knn, "knn": lengths, stalls, parameters, long_packets, side_by_side);
kernel!(relief, "relief": lengths, stalls, parameters, long_packets, side_by_side);
kernel!(smith_waterman, "smith-waterman": lengths, stalls, parameters, long_packets, side_by_side);
kernel!(stencil, "stencil": lengths, stalls, parameters, long_packets, side_by_side);
