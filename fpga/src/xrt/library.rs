//! XRT's C interface (its `xrt_device.h`, `xrt_kernel.h`, `xrt_bo.h`), by dlopen(3): nothing is linked.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::NonNull;

use libloading::Library;

/// What every handle is.
type Handle = *mut c_void;

/// `XCL_BO_SYNC_BO_TO_DEVICE`.
const TO_DEVICE: c_int = 0;
/// `XCL_BO_SYNC_BO_FROM_DEVICE`.
const FROM_DEVICE: c_int = 1;
/// `ERT_CMD_STATE_COMPLETED`.
const COMPLETED: c_int = 4;
/// A buffer that host and card both see.
const NORMAL: u64 = 0;

/// Milliseconds that one packet may take before its run is given up.
const RUN_MS: c_uint = 60_000;

/// The functions that are used.
struct Functions {
    device_open: unsafe extern "C" fn(c_uint) -> Handle,
    device_close: unsafe extern "C" fn(Handle) -> c_int,
    load_file: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    image_id: unsafe extern "C" fn(Handle, *mut u8) -> c_int,
    kernel_open: unsafe extern "C" fn(Handle, *const u8, *const c_char) -> Handle,
    kernel_close: unsafe extern "C" fn(Handle) -> c_int,
    group: unsafe extern "C" fn(Handle, c_int) -> c_int,
    bo_alloc: unsafe extern "C" fn(Handle, usize, u64, u32) -> Handle,
    bo_free: unsafe extern "C" fn(Handle) -> c_int,
    bo_write: unsafe extern "C" fn(Handle, *const c_void, usize, usize) -> c_int,
    bo_read: unsafe extern "C" fn(Handle, *mut c_void, usize, usize) -> c_int,
    bo_sync: unsafe extern "C" fn(Handle, c_int, usize, usize) -> c_int,
    run_open: unsafe extern "C" fn(Handle) -> Handle,
    run_set: unsafe extern "C" fn(Handle, c_int, ...) -> c_int,
    run_start: unsafe extern "C" fn(Handle) -> c_int,
    run_wait: unsafe extern "C" fn(Handle, c_uint) -> c_int,
    run_close: unsafe extern "C" fn(Handle) -> c_int,
    /// The functions are its code.
    _library: Library,
}

fn functions(path: &Path) -> Result<Functions, String> {
    let told = |e: libloading::Error| format!("{}: {e}", path.display());
    // SAFETY: loading runs the library's initialisers, for which this process is there and has nothing to lose. Each
    // symbol is given the type that XRT's headers (2.13) declare for that name; the functions live as long as the
    // library, which is kept beside them.
    unsafe {
        let library = Library::new(path).map_err(told)?;
        macro_rules! symbol {
            ($name:literal) => {
                *library.get(concat!($name, "\0").as_bytes()).map_err(told)?
            };
        }
        Ok(Functions {
            device_open: symbol!("xrtDeviceOpen"),
            device_close: symbol!("xrtDeviceClose"),
            load_file: symbol!("xrtDeviceLoadXclbinFile"),
            image_id: symbol!("xrtDeviceGetXclbinUUID"),
            kernel_open: symbol!("xrtPLKernelOpen"),
            kernel_close: symbol!("xrtKernelClose"),
            group: symbol!("xrtKernelArgGroupId"),
            bo_alloc: symbol!("xrtBOAlloc"),
            bo_free: symbol!("xrtBOFree"),
            bo_write: symbol!("xrtBOWrite"),
            bo_read: symbol!("xrtBORead"),
            bo_sync: symbol!("xrtBOSync"),
            run_open: symbol!("xrtRunOpen"),
            run_set: symbol!("xrtRunSetArg"),
            run_start: symbol!("xrtRunStart"),
            run_wait: symbol!("xrtRunWaitFor"),
            run_close: symbol!("xrtRunClose"),
            _library: library,
        })
    }
}

/// Why something was not done.
pub enum Refused {
    /// By the kernel.
    Errno(u32),
    /// XRT opens no card of that number.
    NoCard(String),
    /// By XRT, or an answer that cannot be.
    Sentence(String),
}

impl From<String> for Refused {
    fn from(sentence: String) -> Refused {
        Refused::Sentence(sentence)
    }
}

/// An open card with an image loaded and a kernel of it opened.
pub struct Opened {
    xrt: Functions,
    device: NonNull<c_void>,
    kernel: NonNull<c_void>,
    /// For arguments 0, 2, 4 and 6: kept from packet to packet.
    buffers: [Option<Buffer>; 4],
}

/// Sentences for what the library only says by NULL or a number.
fn given(handle: Handle, what: impl Fn() -> String) -> Result<NonNull<c_void>, String> {
    NonNull::new(handle).ok_or_else(what)
}

fn zero(code: c_int, what: impl Fn() -> String) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{} ({code})", what())) }
}

impl Opened {
    /// Loads the library, opens the card of this index, loads the image, opens the kernel.
    ///
    /// # Errors
    /// A sentence. The library may also end this process.
    pub fn new(library: &Path, index: u32, image: &Path, name: &str) -> Result<Opened, Refused> {
        let c = |text: &[u8]| CString::new(text).map_err(|_| "a name has a NUL".to_owned());
        let shown = image.display();
        let (file, kernel_name) = (c(image.as_os_str().as_encoded_bytes())?, c(name.as_bytes())?);
        let xrt = functions(library)?;
        // SAFETY: strings end in NUL and outlive the calls; the identifier has the 16 bytes of a `uuid_t`; handles come
        // from this library and are closed once, the device also where a later call fails.
        unsafe {
            let device = given((xrt.device_open)(index), || format!("XRT opens no card number {index}"));
            let device = device.map_err(Refused::NoCard)?;
            let kernel = (|| {
                zero((xrt.load_file)(device.as_ptr(), file.as_ptr()), || format!("XRT does not load {shown}"))?;
                let mut id = [0u8; 16];
                zero((xrt.image_id)(device.as_ptr(), id.as_mut_ptr()), || format!("XRT does not identify {shown}"))?;
                let kernel = (xrt.kernel_open)(device.as_ptr(), id.as_ptr(), kernel_name.as_ptr());
                given(kernel, || format!("{shown} has no kernel {name}"))
            })();
            match kernel {
                Ok(kernel) => Ok(Opened { xrt, device, kernel, buffers: [const { None }; 4] }),
                Err(e) => {
                    (xrt.device_close)(device.as_ptr());
                    Err(e.into())
                }
            }
        }
    }

    /// Sees to it that a buffer has so many bytes of the card's memory that the kernel's argument is connected to. A
    /// new one is zeroed: the card's memory may have what another program left there.
    fn hold(&mut self, place: usize, bytes: usize) -> Result<(), String> {
        if self.buffers[place].as_ref().is_some_and(|b| b.bytes >= bytes) {
            return Ok(());
        }
        self.buffers[place] = None;
        let (argument, bytes) = (2 * place as c_int, bytes.max(1).next_multiple_of(4096));
        // SAFETY: the handles are open; the memory group is the one that the library names for this argument.
        let handle = unsafe {
            let group = (self.xrt.group)(self.kernel.as_ptr(), argument);
            let group = u32::try_from(group).map_err(|_| format!("argument {argument} of the kernel is no buffer"))?;
            (self.xrt.bo_alloc)(self.device.as_ptr(), bytes, NORMAL, group)
        };
        let handle = given(handle, || format!("the card has no memory for {bytes} bytes"))?;
        let buffer = Buffer { handle, bytes, free: self.xrt.bo_free };
        buffer.send(&self.xrt, &vec![0; bytes])?;
        self.buffers[place] = Some(buffer);
        Ok(())
    }

    fn buffer(&self, place: usize) -> Result<&Buffer, String> {
        self.buffers[place].as_ref().ok_or_else(|| "no buffer".to_owned())
    }

    /// Runs a packet: the output, or why there is none.
    ///
    /// # Errors
    /// The kernel's errno, or a sentence. The library may also end this process.
    pub fn run(&mut self, params: &[u8], input: &[u8], room: usize) -> Result<Vec<u8>, Refused> {
        for (place, bytes) in [input.len(), params.len(), room, 64].into_iter().enumerate() {
            self.hold(place, bytes)?;
        }
        let (from, words, to, result) = (self.buffer(0)?, self.buffer(1)?, self.buffer(2)?, self.buffer(3)?);
        from.send(&self.xrt, input)?;
        words.send(&self.xrt, params)?;
        result.send(&self.xrt, &[0; 64])?;
        let (in_bytes, count, out_room) = (input.len() as u64, (params.len() / 4) as u32, room as u64);
        let run = given(
            // SAFETY: the kernel is open.
            unsafe { (self.xrt.run_open)(self.kernel.as_ptr()) },
            || "XRT opens no run of the kernel".to_owned(),
        )?;
        // SAFETY: the run is open until its last call here. The arguments have the types that docs/KERNELS.md states
        // for kernels of images: pointers are given as buffer handles, numbers by value, each as wide as declared.
        let state = unsafe {
            let r = run.as_ptr();
            let set = self.xrt.run_set;
            let wrong = set(r, 0, from.handle.as_ptr())
                | set(r, 1, in_bytes)
                | set(r, 2, words.handle.as_ptr())
                | set(r, 3, count)
                | set(r, 4, to.handle.as_ptr())
                | set(r, 5, out_room)
                | set(r, 6, result.handle.as_ptr());
            let started = if wrong == 0 { (self.xrt.run_start)(r) } else { wrong };
            let state = if started == 0 { Some((self.xrt.run_wait)(r, RUN_MS)) } else { None };
            (self.xrt.run_close)(r);
            state
        };
        match state {
            None => {
                return Err("XRT does not start the kernel: its arguments are not those of docs/KERNELS.md"
                    .to_owned()
                    .into());
            }
            Some(COMPLETED) => {}
            Some(state) => return Err(format!("the kernel's run ended in state {state} of XRT's").into()),
        }
        let words = result.receive(&self.xrt, 16)?;
        let made = u64::from_le_bytes(words[..8].try_into().map_err(|_| "a short result".to_owned())?);
        let errno = u32::from_le_bytes(words[8..12].try_into().map_err(|_| "a short result".to_owned())?);
        if errno != 0 {
            return Err(Refused::Errno(errno));
        }
        let made = usize::try_from(made).ok().filter(|m| *m <= room);
        let made = made.ok_or_else(|| format!("the kernel says that it made more than the {room} bytes of room"))?;
        Ok(to.receive(&self.xrt, made)?)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Buffers go before the card that has them.
        self.buffers = [const { None }; 4];
        // SAFETY: both are open, and not used after this.
        unsafe {
            (self.xrt.kernel_close)(self.kernel.as_ptr());
            (self.xrt.device_close)(self.device.as_ptr());
        }
    }
}

/// A buffer object. It does not outlive the [`Opened`] that has it.
struct Buffer {
    handle: NonNull<c_void>,
    bytes: usize,
    free: unsafe extern "C" fn(Handle) -> c_int,
}

impl Buffer {
    fn send(&self, xrt: &Functions, bytes: &[u8]) -> Result<(), String> {
        debug_assert!(bytes.len() <= self.bytes);
        if bytes.is_empty() {
            return Ok(());
        }
        let told = || "XRT does not copy to the card".to_owned();
        // SAFETY: the buffer is at least as long as the slice, which outlives the calls.
        unsafe {
            zero((xrt.bo_write)(self.handle.as_ptr(), bytes.as_ptr().cast(), bytes.len(), 0), told)?;
            zero((xrt.bo_sync)(self.handle.as_ptr(), TO_DEVICE, bytes.len(), 0), told)
        }
    }

    fn receive(&self, xrt: &Functions, len: usize) -> Result<Vec<u8>, String> {
        debug_assert!(len <= self.bytes);
        let mut bytes = vec![0; len];
        if len == 0 {
            return Ok(bytes);
        }
        let told = || "XRT does not copy from the card".to_owned();
        // SAFETY: as in `send`; the vector has `len` bytes, which are written.
        unsafe {
            zero((xrt.bo_sync)(self.handle.as_ptr(), FROM_DEVICE, len, 0), told)?;
            zero((xrt.bo_read)(self.handle.as_ptr(), bytes.as_mut_ptr().cast(), len, 0), told)?;
        }
        Ok(bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by the library that this function is of, which is loaded while its `Opened` is there; not
        // used after this.
        unsafe {
            (self.free)(self.handle.as_ptr());
        }
    }
}
