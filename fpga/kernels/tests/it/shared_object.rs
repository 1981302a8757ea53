//! A shared object with the interface of `fpga/include/weldfs_kernel.h` as a kernel: Verilated RTL and HLS C++ alike.

use std::error::Error;
use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null};

use libloading::{Library, Symbol};
use weldfs_fpga::kernel::{Fault, Kernel, Step};

/// Memory that a kernel is given, bytes: what the one that asks for most (equalise) does.
const DRAM_BYTES: usize = 32 << 20;
/// The version of the interface that this file speaks.
const ABI: u32 = 1;

/// `weldfs_kernel`: only pointers to it are used.
#[repr(C)]
struct Opaque([u8; 0]);

/// `weldfs_kernel_step`.
#[repr(C)]
#[derive(Default)]
struct RawStep {
    taken: u64,
    made: u64,
    cycles: u64,
    done: u32,
    reserved: u32,
}

type Abi = unsafe extern "C" fn() -> u32;
type New = unsafe extern "C" fn() -> *mut Opaque;
type Free = unsafe extern "C" fn(*mut Opaque);
type Reset = unsafe extern "C" fn(*mut Opaque, *const u32, usize) -> c_int;
type StepRun = unsafe extern "C" fn(*mut Opaque, *const u8, usize, c_int, *mut u8, usize, *mut RawStep) -> c_int;
type Dram = unsafe extern "C" fn(*mut Opaque, *mut u8, u64) -> c_int;
type Peek = unsafe extern "C" fn(*mut Opaque, u32, *mut u32) -> c_int;
type Stall = unsafe extern "C" fn(*mut Opaque, u64, u32, u32) -> c_int;
type Wave = unsafe extern "C" fn(*mut Opaque, *const c_char) -> c_int;

/// A kernel of a shared object. What the functions return becomes the fault of that errno.
pub struct SharedObject {
    kernel: NonNull<Opaque>,
    free: Free,
    reset: Reset,
    step: StepRun,
    peek: Option<Peek>,
    stall: Option<Stall>,
    wave: Option<Wave>,
    /// The card's memory, for a kernel that takes it. Not cleared at a reset, unlike a card's: none of ours reads what
    /// it has not written.
    _dram: Vec<u64>,
    /// The functions above are its code.
    _library: Library,
}

// SAFETY: the header has a kernel used by one thread at a time, not by the one that made it; `&mut self` of every
// method and of `drop` sees to that.
unsafe impl Send for SharedObject {}

/// Where shared objects of kernels are looked for: WELDFS_KERNELS, or `target/kernels` of this source tree.
pub fn folder() -> PathBuf {
    match std::env::var_os("WELDFS_KERNELS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernels"),
    }
}

impl SharedObject {
    /// Loads a shared object and makes a kernel of it, which is to be reset before its first step. The error is a
    /// sentence.
    pub fn open(path: &Path) -> Result<SharedObject, String> {
        let told = |e: libloading::Error| {
            let why = e.source().map_or_else(|| e.to_string(), |source| source.to_string());
            format!("{}: {why}", path.display())
        };
        // SAFETY: the objects are those that the build of this tree made; their initialisers are the C++ library's, and
        // the types are those of the header, whose version is compared before anything else is called.
        unsafe {
            let library = Library::new(path).map_err(told)?;
            let abi: Symbol<Abi> = library.get(b"weldfs_kernel_abi\0").map_err(told)?;
            let version = abi();
            if version != ABI {
                return Err(format!("{}: version {version} of the interface, not {ABI}", path.display()));
            }
            let new: Symbol<New> = library.get(b"weldfs_kernel_new\0").map_err(told)?;
            let free = *library.get::<Free>(b"weldfs_kernel_free\0").map_err(told)?;
            let reset = *library.get::<Reset>(b"weldfs_kernel_reset\0").map_err(told)?;
            let step = *library.get::<StepRun>(b"weldfs_kernel_step_run\0").map_err(told)?;
            let peek = library.get::<Peek>(b"weldfs_kernel_peek\0").ok().map(|f| *f);
            let stall = library.get::<Stall>(b"weldfs_kernel_stall\0").ok().map(|f| *f);
            let wave = library.get::<Wave>(b"weldfs_kernel_wave\0").ok().map(|f| *f);
            let kernel = NonNull::new(new()).ok_or_else(|| format!("{}: no memory", path.display()))?;
            let mut dram = Vec::new();
            if let Ok(give) = library.get::<Dram>(b"weldfs_kernel_dram\0") {
                // Pages that no kernel touches are never there.
                dram = vec![0; DRAM_BYTES / size_of::<u64>()];
                give(kernel.as_ptr(), dram.as_mut_ptr().cast(), DRAM_BYTES as u64);
            }
            Ok(SharedObject { kernel, free, reset, step, peek, stall, wave, _dram: dram, _library: library })
        }
    }

    /// From now on each side stalls at random cycles, so many in a thousand; seed 0 ends that. Whether it can.
    pub fn stall(&mut self, seed: u64, input: u32, output: u32) -> bool {
        // SAFETY: the kernel is alive, and not in use elsewhere.
        self.stall.is_some_and(|stall| unsafe { stall(self.kernel.as_ptr(), seed, input, output) } == 0)
    }

    /// Writes a waveform of what follows to this file; without one, ends that. Whether it can.
    pub fn wave(&mut self, file: Option<&Path>) -> bool {
        let name = file.map(|f| CString::new(f.as_os_str().as_bytes()).expect("a path has no NUL"));
        let name = name.as_ref().map_or(null(), |n| n.as_ptr());
        // SAFETY: as above; the name is NULL or ends in NUL, and outlives the call.
        self.wave.is_some_and(|wave| unsafe { wave(self.kernel.as_ptr(), name) } == 0)
    }
}

impl Drop for SharedObject {
    fn drop(&mut self) {
        // SAFETY: the kernel came from this library's `weldfs_kernel_new`, and is not used after this.
        unsafe { (self.free)(self.kernel.as_ptr()) }
    }
}

fn fault(code: c_int) -> Result<(), Fault> {
    match code {
        0 => Ok(()),
        libc::EINVAL => Err(Fault::Params("the shared object does not take them".into())),
        libc::EBADMSG => Err(Fault::Data("not what the shared object takes".into())),
        code => Err(Fault::Lost(format!("the shared object says {code}"))),
    }
}

impl Kernel for SharedObject {
    fn reset(&mut self, params: &[u32]) -> Result<(), Fault> {
        // SAFETY: the kernel is alive; pointer and count are those of one slice.
        fault(unsafe { (self.reset)(self.kernel.as_ptr(), params.as_ptr(), params.len()) })
    }

    fn step(&mut self, input: &[u8], eop: bool, out: &mut [u8]) -> Result<Step, Fault> {
        let mut raw = RawStep::default();
        let (from, from_len, to, to_len) = (input.as_ptr(), input.len(), out.as_mut_ptr(), out.len());
        // SAFETY: the kernel is alive; pointers and lengths are those of the slices, which outlive the call.
        fault(unsafe { (self.step)(self.kernel.as_ptr(), from, from_len, eop.into(), to, to_len, &mut raw) })?;
        let (taken, made) = (raw.taken as usize, raw.made as usize);
        if taken > from_len || made > to_len {
            return Err(Fault::Lost(format!("it took {taken} bytes of {from_len} and made {made} of {to_len}")));
        }
        Ok(Step { taken, made, done: raw.done != 0, cycles: raw.cycles })
    }

    fn peek(&mut self, port: u32) -> Option<u32> {
        let mut value = 0;
        // SAFETY: the kernel is alive, and `value` outlives the call.
        let code = unsafe { (self.peek?)(self.kernel.as_ptr(), port, &mut value) };
        (code == 0).then_some(value)
    }
}
