//! Small kernels, and what it takes to run a card in a test.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use weldfs_fpga::card::Card;
use weldfs_fpga::config::{CardConfig, Reconfigure, Want, WhenFull};
use weldfs_fpga::kernel::{Fault, Kernel, Model, Stream};
use weldfs_fpga::manifest::Manifest;
use weldfs_fpga::package::Catalogue;

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(60)),
        }
    }
}

/// Polls a future once.
pub fn once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Adds its parameter to every byte; a byte of 255 with the parameter 1 panics, one of 254 is wrong data.
#[derive(Default)]
pub struct Add(u8, u32);

impl Stream for Add {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        (self.0, self.1) = (params[0] as u8, 0);
        if params[0] < 256 { Ok(()) } else { Err(Fault::Params("at most 255".into())) }
    }

    fn chunk(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        assert!(self.0 != 1 || !input.contains(&255), "a byte too large");
        if self.0 == 1 && input.contains(&254) {
            return Err(Fault::Data("254".into()));
        }
        self.1 += input.len() as u32;
        out.extend(input.iter().map(|b| b.wrapping_add(self.0)));
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<(), Fault> {
        Ok(())
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        (port == 0).then_some(self.1)
    }
}

/// The manifest of a built-in kernel that takes one parameter.
pub fn manifest(name: &str, builtin: &str, lut: u32, clock_mhz: u32) -> Manifest {
    let id: String = name.bytes().chain(std::iter::repeat(7)).take(16).map(|b| format!("{b:02x}")).collect();
    let text = format!(
        "name = \"{name}\"\nid = \"{id}\"\nversion = \"1.0.0\"\nlicence = \"Apache-2.0\"\nabout = \"A test\"\n\
         clock_mhz = {clock_mhz}\ncycles_per_flit = 2.0\nregion = {{ lut = {lut}, ff = 1, bram = 0, dsp = 0 }}\n\
         [params]\nmin = 1\nmax = 1\n[backend.model]\nbuiltin = \"{builtin}\"\n"
    );
    Manifest::parse(&text).expect("a good manifest")
}

pub fn add() -> Box<dyn Kernel> {
    Box::new(Model::new(Add::default(), 2.0))
}

/// Kernels `add`, `plus` and `sum`, which do the same.
pub fn catalogue() -> Catalogue {
    let mut catalogue = Catalogue::new();
    for name in ["add", "plus", "sum"] {
        catalogue.add_builtin(manifest(name, "add", 100, 250), add).expect("added");
    }
    catalogue
}

/// A card with so many slots that are reconfigured at once.
pub fn config(slots: usize) -> CardConfig {
    CardConfig { reconfigure: Reconfigure::NONE, ..CardConfig::with_slots(slots) }
}

pub fn card(slots: usize) -> Arc<Card> {
    Card::new(config(slots), catalogue()).expect("a card")
}

pub fn want(kernel: &str, param: u32, tenant: u64) -> Want {
    Want { kernel: kernel.into(), params: vec![param], tenant, weight: 1, when_full: WhenFull::Busy, keeps: false }
}

/// Polls until something has happened on another thread.
pub fn until<T>(mut what: impl FnMut() -> Option<T>) -> T {
    for _ in 0..60_000 {
        if let Some(value) = what() {
            return value;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it did not happen in a minute");
}

/// Stays in its first chunk until its gate is opened.
pub struct Gate(pub usize);

impl Stream for Gate {
    fn reset(&mut self, _params: &[u32]) -> Result<(), Fault> {
        Ok(())
    }

    fn chunk(&mut self, _input: &[u8], _out: &mut Vec<u8>) -> Result<(), Fault> {
        gate::pass(self.0);
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<(), Fault> {
        Ok(())
    }
}

/// The gates: one test uses each.
pub mod gate {
    use std::sync::{Condvar, Mutex};

    static STATE: Mutex<[(bool, bool); 3]> = Mutex::new([(false, false); 3]);
    static CHANGED: Condvar = Condvar::new();

    fn until(gate: usize, ready: impl Fn(&(bool, bool)) -> bool) {
        let state = STATE.lock().expect("the gate");
        drop(CHANGED.wait_while(state, |s| !ready(&s[gate])).expect("the gate"));
    }

    fn set(gate: usize, change: impl Fn(&mut (bool, bool))) {
        change(&mut STATE.lock().expect("the gate")[gate]);
        CHANGED.notify_all();
    }

    pub fn wait_until_inside(gate: usize) {
        until(gate, |s| s.0);
    }

    pub fn open(gate: usize) {
        set(gate, |s| s.1 = true);
    }

    pub fn pass(gate: usize) {
        set(gate, |s| s.0 = true);
        until(gate, |s| s.1);
    }
}
