//! Memory of the card that a kernel asks for.

use crate::process::{compile_file, host, launch};
use crate::rig::{catalogue, config};
use weldfs_fpga::card::Card;
use weldfs_fpga::config::CardConfig;
use weldfs_fpga::error::CardError;
use weldfs_fpga::host::Launch;
use weldfs_fpga::kernel::Kernel;
use weldfs_fpga::manifest::Manifest;
use weldfs_fpga::package::Package;

/// A chain of two kernels of the card's, with as much memory.
fn asking(dram_bytes: u64) -> Package {
    let text = format!(
        "name = \"asks\"\nid = \"{:032x}\"\nversion = \"1.0.0\"\nlicence = \"Apache-2.0\"\nabout = \"A test\"\n\
         clock_mhz = 250\ncycles_per_flit = 2.0\nregion = {{ lut = 500, ff = 100, bram = 0, dsp = 0 }}\n\
         [params]\nmin = 0\nmax = 9\n[ports]\ndram_bytes = {dram_bytes}\n[backend.model]\n\
         chain = [{{ kernel = \"add\", params = [1] }}, {{ kernel = \"plus\" }}]\n",
        5
    );
    Package::builtin(Manifest::parse(&text).expect("a good manifest")).expect("a package")
}

#[test]
fn a_kernel_is_given_as_much_memory_as_it_asks_for_and_finds_it_zero_at_every_reset() {
    let Some(library) = compile_file("dram.c", "DRAM") else { return };
    let mut kernel = Launch { dram_bytes: 3 << 20, ..launch(&library) }.start().expect("started");
    for _ in 0..3 {
        kernel.reset(&[]).expect("reset");
        assert_eq!((kernel.peek(0), kernel.peek(1)), (Some(0), Some(3 << 10)));
    }
    // One whose manifest asks for none is given none.
    let mut kernel = launch(&library).start().expect("started");
    kernel.reset(&[]).expect("reset");
    assert_eq!(kernel.peek(1), Some(0));
    // More than the machine can map is an error of that kernel, in words.
    let error = Launch { dram_bytes: 1 << 60, ..launch(&library) }.start().err().expect("refused");
    assert!(error.to_string().contains("1152921504606846976 bytes of the card's memory"), "{error}");
}

#[test]
fn a_kernel_that_asks_for_more_memory_than_a_slot_has_is_not_loaded() {
    let card = Card::new(CardConfig { dram_bytes: 4096, host: host(), ..config(1) }, catalogue()).expect("a card");
    let error = card.load(asking(4097)).expect_err("refused");
    assert_eq!(error, CardError::Memory { kernel: "asks".into(), asks: 4097, has: 4096 });
    assert_eq!(error.errno().name(), "ENOSPC");
    card.load(asking(4096)).expect("loaded");
}
