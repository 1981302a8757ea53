//! Kernels that no card should have: one is lost at its first byte, one takes its time, and one is lost where a packet
//! says so.

use std::sync::Arc;

use weldfs_fpga::card::Card;
use weldfs_fpga::config::CardConfig;
use weldfs_fpga::kernel::{Fault, Kernel, Model, Step, Stream};
use weldfs_fpga::manifest::Manifest;
use weldfs_fpga::package::Catalogue;

struct Broken;

impl Stream for Broken {
    fn reset(&mut self, _params: &[u32]) -> Result<(), Fault> {
        Ok(())
    }

    fn chunk(&mut self, _input: &[u8], _out: &mut Vec<u8>) -> Result<(), Fault> {
        Err(Fault::Lost("as it is meant to be".into()))
    }

    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<(), Fault> {
        Ok(())
    }
}

struct Slow;

impl Stream for Slow {
    fn reset(&mut self, _params: &[u32]) -> Result<(), Fault> {
        Ok(())
    }

    fn chunk(&mut self, _input: &[u8], _out: &mut Vec<u8>) -> Result<(), Fault> {
        std::thread::sleep(std::time::Duration::from_millis(300));
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<(), Fault> {
        Ok(())
    }
}

/// What has the kernel crc32c lost in a test, wherever it comes in a packet.
pub(crate) const LOSES: &[u8; 16] = b"loses its kernel";

/// The kernel that comes with the device, until it is lost.
struct Losable(Box<dyn Kernel>);

impl Kernel for Losable {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        self.0.reset(params)
    }

    fn step(&mut self, input: &[u8], eop: bool, out: &mut [u8]) -> Result<Step, Fault> {
        match input.windows(LOSES.len()).any(|bytes| bytes == LOSES) {
            true => Err(Fault::Lost("as the packet says".into())),
            false => self.0.step(input, eop, out),
        }
    }
}

/// As on every card, and losable.
fn crc32c() -> Box<dyn Kernel> {
    Box::new(Losable(weldfs_kernels::make("crc32c").unwrap()))
}

fn broken() -> Box<dyn Kernel> {
    Box::new(Model::new(Broken, 1.0))
}

fn slow() -> Box<dyn Kernel> {
    Box::new(Model::new(Slow, 1.0))
}

/// A card with these beside its own.
pub(crate) fn card(config: CardConfig) -> std::io::Result<Arc<Card>> {
    let mut catalogue = weldfs_fs::card::catalogue(|name, make| if name == "crc32c" { crc32c } else { make })?;
    add(&mut catalogue);
    weldfs_fs::card::with(config, catalogue)
}

/// Adds both.
fn add(catalogue: &mut Catalogue) {
    for (name, digit, make) in [("test-broken", 'b', broken as fn() -> Box<dyn Kernel>), ("test-slow", 'c', slow)] {
        let id: String = std::iter::repeat_n(digit, 32).collect();
        let text = format!(
            "name = \"{name}\"\nid = \"{id}\"\nversion = \"1.0.0\"\n\
             licence = \"Apache-2.0\"\nabout = \"For tests.\"\n\
             clock_mhz = 250\ncycles_per_flit = 1.0\nregion = {{ lut = 1, ff = 1, bram = 0, dsp = 0 }}\n\
             [params]\nmin = 0\nmax = 0\nabout = \"none\"\n[backend.model]\nbuiltin = \"{name}\"\n"
        );
        catalogue.add_builtin(Manifest::parse(&text).unwrap(), make).unwrap();
    }
}
