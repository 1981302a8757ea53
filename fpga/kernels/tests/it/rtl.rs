//! Verilated RTL against the references. The shared objects are made by `fpga/rtl/build.py`.

use rand::Rng;
use rand::rngs::SmallRng;

use crate::compare::Subject;
use crate::shared_object::folder;

fn bytes(rng: &mut SmallRng, _: &[u32], len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.random()).collect()
}

#[test]
#[ignore = "needs what fpga/rtl/build.py makes"]
fn pass_through() {
    let object = folder().join("librtl_pass_through.so");
    let (name, good, bad) = ("pass-through", vec![vec![]], vec![vec![0], vec![1, 2]]);
    Subject { name, object: &object, good, bad, packet: bytes, longest: 5000, ports: 2 }.compare(1, 60);
}
