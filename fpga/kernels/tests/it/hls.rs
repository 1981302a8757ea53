//! HLS C++, compiled as programs, against the oracles and the references. `fpga/hls/build.py` makes the shared objects.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weldfs_fpga::kernel::{Kernel, run};

use crate::checks::{self, same, scattered};
use crate::shared_object::{SharedObject, folder};
use crate::subjects::{SUBJECTS, Subject};

/// Rounds of a comparison: more of them in the long form of the tests.
fn rounds() -> u64 {
    std::env::var("WELDFS_HLS_ROUNDS").map_or(20, |n| n.parse().expect("a number"))
}

fn open(subject: &Subject) -> SharedObject {
    SharedObject::open(&folder().join(format!("libhls_{}.so", subject.name))).unwrap()
}

#[test]
#[ignore = "needs what fpga/hls/build.py makes"]
fn the_oracles_hold_for_every_length_and_cut() {
    for subject in SUBJECTS {
        checks::cases(subject, &mut open(subject), 8, 2);
    }
}

#[test]
#[ignore = "needs what fpga/hls/build.py makes"]
fn the_oracles_hold_when_both_sides_stall() {
    for subject in SUBJECTS {
        let mut kernel = open(subject);
        for (seed, input, output) in [(1, 500, 0), (2, 0, 500), (3, 400, 400), (4, 900, 100), (5, 100, 900)] {
            assert!(kernel.stall(seed, input, output));
            checks::cases(subject, &mut kernel, 2, seed);
        }
    }
}

#[test]
#[ignore = "needs what fpga/hls/build.py makes"]
fn wrong_parameters_are_refused_and_a_reset_forgets() {
    for subject in SUBJECTS {
        checks::parameters(subject, &mut open(subject));
    }
}

/// Longer packets than an oracle is quick for, several with the same parameters; debug ports, too.
#[test]
#[ignore = "needs what fpga/hls/build.py makes"]
fn the_references_hold_for_long_packets() {
    for subject in SUBJECTS {
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
}

/// Two objects of one library share nothing.
#[test]
#[ignore = "needs what fpga/hls/build.py makes"]
fn kernels_side_by_side_do_not_meet() {
    for subject in SUBJECTS {
        let mut rng = SmallRng::seed_from_u64(9);
        let mut kernels = [open(subject), open(subject)];
        let mut expected = Vec::new();
        for kernel in &mut kernels {
            let params = (subject.params)(3, &mut rng);
            let input = (subject.input)(&params, 3000, &mut rng);
            kernel.reset(&params).unwrap();
            let step = kernel.step(&input[..1000], false, &mut [0; 10]).unwrap();
            let mut made = vec![0; 10];
            made.truncate(step.made);
            expected.push(((subject.oracle)(&params, &input), input, step));
        }
        for (kernel, (expected, input, step)) in kernels.iter_mut().zip(expected) {
            let rest = scattered(kernel, &input[step.taken..], &mut rng).unwrap();
            same(&rest, &expected[step.made..], || subject.name.into());
        }
    }
}
