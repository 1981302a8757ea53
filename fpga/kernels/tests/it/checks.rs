//! What is checked of every kernel, of whichever back-end.

use std::io::Write;
use std::process::{Command, Stdio};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weldfs_fpga::kernel::{Fault, Kernel, Step, run};

use crate::subjects::{SUBJECTS, Subject};

/// A short name of what is compared: thousands of bytes in a message help no reader.
pub fn same(out: &[u8], expected: &[u8], what: impl Fn() -> String) {
    let at = out.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        out == expected,
        "{}: {} bytes of {} expected, first difference at {at:?}",
        what(),
        out.len(),
        expected.len()
    );
}

/// Lengths of 0 to 130, and some around one, two, and more units.
pub fn lengths(unit: usize) -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..=130).collect();
    for units in [1, 2, 3, 7, 8, 11, 17] {
        lengths.extend([units * unit - 1, units * unit, units * unit + 1, units * unit + unit / 2]);
    }
    lengths.retain(|len| *len <= 64 << 10);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Output of a packet whose input is cut and whose output is drained at random; flits of 0 bytes at its end, too.
pub fn scattered(kernel: &mut dyn Kernel, input: &[u8], rng: &mut SmallRng) -> Result<Vec<u8>, Fault> {
    let (mut out, mut at, most) = (Vec::new(), 0, rng.random_range(1..200));
    loop {
        let end = input.len().min(at + rng.random_range(0..=most));
        let mut room = vec![0; rng.random_range(0..=most)];
        // The end is sometimes told with the last byte, sometimes after it.
        let eop = end == input.len() && (at == end || rng.random());
        let step: Step = kernel.step(&input[at..end], eop, &mut room)?;
        out.extend_from_slice(&room[..step.made]);
        at += step.taken;
        if step.done {
            assert_eq!(at, input.len(), "done before its end");
            return Ok(out);
        }
        let idle = (at == end && !eop && step.taken == 0) || room.is_empty();
        assert!(idle || step.taken + step.made > 0, "it neither takes nor makes anything");
    }
}

/// Tails, cuts, stalls, several packets with one set of parameters.
pub fn cases(subject: &Subject, kernel: &mut dyn Kernel, kinds: usize, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    for kind in 0..kinds {
        let params = (subject.params)(kind, &mut rng);
        kernel.reset(&params).unwrap();
        for len in lengths((subject.unit)(&params)) {
            let input = (subject.input)(&params, len, &mut rng);
            let expected = (subject.oracle)(&params, &input);
            let (whole, _) = run(kernel, &input, 4096, 4096).unwrap();
            let what = || format!("{}, kind {kind}, seed {seed}, {len} bytes", subject.name);
            same(&whole, &expected, what);
            same(&scattered(kernel, &input, &mut rng).unwrap(), &expected, what);
        }
    }
}

/// Wrong parameters are refused; good ones thereafter, and in the middle of a packet, begin anew.
pub fn parameters(subject: &Subject, kernel: &mut dyn Kernel) {
    for params in (subject.bad)() {
        let name = subject.name;
        let short = &params[..params.len().min(12)];
        assert!(matches!(kernel.reset(&params), Err(Fault::Params(_))), "{name} takes {short:?}...");
    }
    let mut rng = SmallRng::seed_from_u64(1);
    for round in 0..40 {
        let params = (subject.params)(round, &mut rng);
        let len = rng.random_range(1..3 * (subject.unit)(&params).min(20_000));
        let input = (subject.input)(&params, len, &mut rng);
        kernel.reset(&params).unwrap();
        // Some of it, without an end.
        let cut = rng.random_range(0..input.len());
        kernel.step(&input[..cut], false, &mut vec![0; rng.random_range(0..100)]).unwrap();
        kernel.reset(&params).unwrap();
        let out = scattered(kernel, &input, &mut rng).unwrap();
        same(&out, &(subject.oracle)(&params, &input), || format!("{} after a reset, round {round}", subject.name));
    }
}

fn each(check: impl Fn(&Subject, &mut dyn Kernel)) {
    for subject in SUBJECTS {
        check(subject, &mut *(weldfs_kernels::find(subject.name).unwrap().make)());
    }
}

#[test]
fn the_references_are_what_their_oracles_say() {
    each(|subject, kernel| cases(subject, kernel, 8, 1));
}

#[test]
fn the_references_refuse_wrong_parameters_and_forget_at_a_reset() {
    each(parameters);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

    #[test]
    fn the_references_hold_for_any_length_and_cut(kind in 0..64usize, share in 0..1000usize, seed: u64) {
        each(|subject, kernel| {
            let mut rng = SmallRng::seed_from_u64(seed);
            let params = (subject.params)(kind, &mut rng);
            let len = (12 * (subject.unit)(&params)).min(60_000) * share / 1000;
            let input = (subject.input)(&params, len, &mut rng);
            kernel.reset(&params).unwrap();
            let out = scattered(kernel, &input, &mut rng).unwrap();
            same(&out, &(subject.oracle)(&params, &input), || format!("{}, {len} bytes", subject.name));
        });
    }
}

/// `gzip -dc` is the peer: it reads what the kernel makes of long input, of short, and of none.
#[test]
fn gunzip_reads_what_the_reference_writes() {
    let gzip = |input: &[u8]| {
        let mut kernel = (weldfs_kernels::find("gzip").unwrap().make)();
        kernel.reset(&[0]).unwrap();
        run(&mut *kernel, input, 1 << 16, 1 << 16).unwrap().0
    };
    let subject = SUBJECTS.iter().find(|s| s.name == "gzip").unwrap();
    let mut rng = SmallRng::seed_from_u64(3);
    for len in [0, 1, 2, 3, 7, 8, 9, 300, 70_000, 3_000_000] {
        let input = (subject.input)(&[0], len, &mut rng);
        let member = gzip(&input);
        let Some(back) = gunzip(&member) else {
            println!("skipped: there is no gzip that can be started");
            return;
        };
        same(&back, &input, || format!("gunzip of {len} bytes"));
    }
}

/// What `gzip -dc` makes of it; it may not complain. `None`: it cannot be started.
pub fn gunzip(member: &[u8]) -> Option<Vec<u8>> {
    let (stdin, mut feed) = std::io::pipe().unwrap();
    let mut command = Command::new("gzip");
    let child = command.arg("-dc").stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
    drop(command);
    let output = std::thread::scope(|scope| {
        scope.spawn(move || feed.write_all(member));
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    Some(output.stdout)
}
