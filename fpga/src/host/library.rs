//! A shared object with the C interface of `fpga/include/weldfs_kernel.h`, in the process that it was loaded into.

use super::launch::Stall;
use super::memory::{Dram, Shared};
use super::wire::{BUFFER_BYTES, Code, Reply, input_at, output_at};
use libloading::os::unix::{Library as Dynamic, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The version of the interface.
const ABI: u32 = 1;

#[repr(C)]
#[derive(Default)]
struct CStep {
    taken: u64,
    made: u64,
    cycles: u64,
    done: u32,
    reserved: u32,
}

type AbiFn = unsafe extern "C" fn() -> u32;
type NewFn = unsafe extern "C" fn() -> *mut c_void;
type ResetFn = unsafe extern "C" fn(*mut c_void, *const u32, usize) -> c_int;
type StepFn = unsafe extern "C" fn(*mut c_void, *const u8, usize, c_int, *mut u8, usize, *mut CStep) -> c_int;
type DramFn = unsafe extern "C" fn(*mut c_void, *mut u8, u64) -> c_int;
type PeekFn = unsafe extern "C" fn(*mut c_void, u32, *mut u32) -> c_int;
type StallFn = unsafe extern "C" fn(*mut c_void, u64, u32, u32) -> c_int;
type WaveFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int;

/// The shared object and, once made, its kernel. Never unloaded: the process ends with it.
pub struct Library {
    dynamic: Dynamic,
    kernel: *mut c_void,
    reset: ResetFn,
    step: StepFn,
    peek: Option<PeekFn>,
    /// The card's memory, if the kernel takes some.
    dram: Option<Dram>,
}

/// Looks a function up.
///
/// # Safety
/// `F` is the type of the function of that name.
unsafe fn symbol<F: Copy>(dynamic: &Dynamic, name: &str) -> Option<F> {
    // SAFETY: the caller knows the type.
    unsafe { dynamic.get::<F>(name.as_bytes()) }.ok().map(|s| *s)
}

impl Library {
    /// Loads a shared object: its constructors run. No kernel is made yet.
    pub fn open(path: &Path) -> Result<Library, Reply> {
        // SAFETY: this runs foreign code, which may do anything that this process may. That is what the process is for:
        // it has been confined, and holds nothing but the card's buffers.
        let dynamic = unsafe { Dynamic::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let dynamic = dynamic.map_err(|e| Reply::of(Code::File, e.to_string()))?;
        let missing = |name: &str| Reply::of(Code::Symbol, name);
        // SAFETY: the types are those of the header.
        let (abi, reset, step, peek) = unsafe {
            let abi: AbiFn = symbol(&dynamic, "weldfs_kernel_abi").ok_or_else(|| missing("weldfs_kernel_abi"))?;
            let _: NewFn = symbol(&dynamic, "weldfs_kernel_new").ok_or_else(|| missing("weldfs_kernel_new"))?;
            let _: NewFn = symbol(&dynamic, "weldfs_kernel_free").ok_or_else(|| missing("weldfs_kernel_free"))?;
            let reset = symbol(&dynamic, "weldfs_kernel_reset").ok_or_else(|| missing("weldfs_kernel_reset"))?;
            let step = symbol(&dynamic, "weldfs_kernel_step_run").ok_or_else(|| missing("weldfs_kernel_step_run"))?;
            (abi, reset, step, symbol(&dynamic, "weldfs_kernel_peek"))
        };
        // SAFETY: it takes nothing and gives a number.
        let found = unsafe { abi() };
        if found != ABI {
            return Err(Reply { taken: found.into(), ..Reply::of(Code::Abi, "") });
        }
        Ok(Library { dynamic, kernel: std::ptr::null_mut(), reset, step, peek, dram: None })
    }

    /// Makes the kernel.
    pub fn make(&mut self) -> Result<(), Reply> {
        // SAFETY: the type is that of the header.
        let new: Option<NewFn> = unsafe { symbol(&self.dynamic, "weldfs_kernel_new") };
        let new = new.ok_or_else(|| Reply::of(Code::Symbol, "weldfs_kernel_new"))?;
        // SAFETY: it takes nothing; NULL means that there is no memory.
        self.kernel = unsafe { new() };
        match self.kernel.is_null() {
            true => Err(Reply::of(Code::Lost, "it has not enough memory")),
            false => Ok(()),
        }
    }

    /// Gives it memory of the card, if it takes any: one that has no such function keeps what it needs by itself.
    pub fn give(&mut self, bytes: u64) -> Result<(), Reply> {
        // SAFETY: the type is that of the header.
        let function: Option<DramFn> = unsafe { symbol(&self.dynamic, "weldfs_kernel_dram") };
        let Some(function) = function else { return Ok(()) };
        let lacks = |e: std::io::Error| Reply::of(Code::Lost, format!("{bytes} bytes of the card's memory: {e}"));
        let length = usize::try_from(bytes).map_err(|e| lacks(std::io::Error::other(e)))?;
        let dram = self.dram.insert(Dram::map(length).map_err(lacks)?);
        // SAFETY: as `stall`; the mapping is as long as it is told, and stays until the process ends.
        answer(unsafe { function(self.kernel, dram.range().0, bytes) })
    }

    /// For tests: each side stalls at random cycles.
    pub fn stall(&mut self, stall: &Stall) -> Result<(), Reply> {
        // SAFETY: the type is that of the header.
        let function: Option<StallFn> = unsafe { symbol(&self.dynamic, "weldfs_kernel_stall") };
        let function = function.ok_or_else(|| Reply::of(Code::Symbol, "weldfs_kernel_stall"))?;
        // SAFETY: the kernel was made, and only this thread calls its functions.
        answer(unsafe { function(self.kernel, stall.seed, stall.in_permille, stall.out_permille) })
    }

    /// For tests: writes a waveform to a file.
    pub fn wave(&mut self, path: &Path) -> Result<(), Reply> {
        // SAFETY: the type is that of the header.
        let function: Option<WaveFn> = unsafe { symbol(&self.dynamic, "weldfs_kernel_wave") };
        let function = function.ok_or_else(|| Reply::of(Code::Symbol, "weldfs_kernel_wave"))?;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| Reply::of(Code::Params, e.to_string()))?;
        // SAFETY: as `stall`; the path is a C string that outlives the call.
        answer(unsafe { function(self.kernel, path.as_ptr()) })
    }

    /// Begins anew with parameters.
    pub fn reset(&mut self, params: &[u32]) -> Result<(), Reply> {
        if let Some(dram) = &self.dram {
            dram.clear().map_err(|e| Reply::of(Code::Lost, format!("the card's memory: {e}")))?;
        }
        // SAFETY: as `stall`; the parameters are a slice that outlives the call.
        answer(unsafe { (self.reset)(self.kernel, params.as_ptr(), params.len()) })
    }

    /// One step on `len` bytes of an input buffer, from `from`, into an output buffer whose first `used` bytes are
    /// taken.
    pub fn step(
        &mut self,
        shared: &Shared,
        buffer: usize,
        from: usize,
        len: usize,
        eop: bool,
        used: usize,
    ) -> Result<Reply, Reply> {
        let room = BUFFER_BYTES - used;
        let input = shared.address(input_at(buffer) + from, len);
        let output = shared.address(output_at(buffer) + used, room);
        let mut step = CStep::default();
        // SAFETY: as `stall`; both ranges are inside of the shared memory, do not overlap, and outlive the call. A
        // kernel that writes outside of them harms this process only.
        let code = unsafe { (self.step)(self.kernel, input, len, c_int::from(eop), output, room, &mut step) };
        answer(code)?;
        let (taken, made, cycles, done) = (step.taken, step.made, step.cycles, step.done != 0);
        Ok(Reply { taken, made, cycles, done, ..Reply::of(Code::Good, "") })
    }

    /// A value of the debug port.
    pub fn peek(&mut self, port: u32) -> Result<u32, Reply> {
        let peek = self.peek.ok_or_else(|| Reply::of(Code::Params, "no debug port"))?;
        let mut value = 0;
        // SAFETY: as `stall`; the value outlives the call.
        answer(unsafe { peek(self.kernel, port, &mut value) })?;
        Ok(value)
    }
}

/// What a function of the kernel's returned.
fn answer(code: c_int) -> Result<(), Reply> {
    match code {
        0 => Ok(()),
        libc::EINVAL => Err(Reply::of(Code::Params, "the kernel refuses them")),
        libc::EBADMSG => Err(Reply::of(Code::Data, "the kernel does not take it")),
        other => Err(Reply::of(Code::Lost, format!("it says error {other}"))),
    }
}
