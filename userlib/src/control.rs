//! What concerns the device and not its files: settings, tenants, kernels.
//!
//! Errors of all calls: ENODEV when the device is gone, EPERM where only root and the device's owner may ask.

use crate::client::Client;
use std::io;
use weldfs_ciscops::Errno;
use weldfs_ciscops::attach::{Reply, Request, Token};

impl Client {
    /// Changes a setting of the device, `key=value`; in force from its next decision on. EINVAL: not of that form;
    /// ENOENT: no such key; ERANGE: a value it cannot have; EPERM.
    pub fn tune(&self, setting: &str) -> io::Result<()> {
        // An empty request would ask for the list.
        if setting.is_empty() {
            return Err(Errno::INVAL.into());
        }
        self.text(&Request::Tune(setting.into())).map(drop)
    }

    /// All settings with values and ranges, as a JSON array.
    pub fn settings_json(&self) -> io::Result<String> {
        self.json(&Request::Tune(Vec::new()))
    }

    /// The device's tenants with weights, limits and usage, as a JSON array.
    pub fn tenants_json(&self) -> io::Result<String> {
        self.json(&Request::Tenants)
    }

    /// The token of the tenant `name`. ENOENT: no such tenant; EOPNOTSUPP: it has none; EPERM.
    pub fn tenant_token(&self, name: &str) -> io::Result<Token> {
        match self.control(&Request::Token(name.into()))? {
            Reply::Token(token) => Ok(token),
            _ => Err(Errno::PROTO.into()),
        }
    }

    /// The card's slots, kernels and tenants, as JSON: what is in each slot, and what the kernels are. EOPNOTSUPP on a
    /// directory of the host, which has no card.
    pub fn kernels_json(&self) -> io::Result<String> {
        self.json(&Request::Kernels(Vec::new()))
    }

    /// Loads a kernel's package, a folder that the device can read, given by its absolute path; returns the kernel's
    /// name. It is not active yet. EINVAL: it is no package; ENOENT: a file is missing; EEXIST: the name is taken;
    /// EPERM.
    pub fn load_kernel(&self, package: impl AsRef<std::path::Path>) -> io::Result<String> {
        use std::os::unix::ffi::OsStrExt;
        self.kernel_verb("load", package.as_ref().as_os_str().as_bytes())
    }

    /// Why a kernel's package cannot be loaded, a sentence; empty where it can. Nothing is loaded: its shared objects
    /// are tried out. EINVAL: the path is not absolute; EPERM.
    pub fn try_kernel(&self, package: impl AsRef<std::path::Path>) -> io::Result<String> {
        use std::os::unix::ffi::OsStrExt;
        self.kernel_verb("try", package.as_ref().as_os_str().as_bytes())
    }

    /// Forgets a kernel. ENOENT: there is none of that name; EBUSY: it is active; EPERM, also for those that the device
    /// brings.
    pub fn unload_kernel(&self, name: &str) -> io::Result<()> {
        self.kernel_verb("unload", name.as_bytes()).map(drop)
    }

    /// From now on a kernel can be executed. ENOENT, EPERM.
    pub fn activate_kernel(&self, name: &str) -> io::Result<()> {
        self.kernel_verb("activate", name.as_bytes()).map(drop)
    }

    /// From now on a kernel cannot be executed. ENOENT, EPERM; EBUSY: it is in use.
    pub fn deactivate_kernel(&self, name: &str) -> io::Result<()> {
        self.kernel_verb("deactivate", name.as_bytes()).map(drop)
    }

    /// Which back-end of a kernel (`model`, `rtl`, `hls`, `xrt`) runs where none is named. ENOENT: no such kernel, no
    /// back-end is called so, or its file is not there; EINVAL: the kernel has none of that kind; EPERM.
    pub fn prefer_kernel(&self, name: &str, backend: &str) -> io::Result<()> {
        self.kernel_verb("prefer", format!("{name} {backend}").as_bytes()).map(drop)
    }

    /// The value of a debug port of a kernel that is in a slot. ENOENT: it is in none, or has no such port;
    /// EBUSY: it computes right now; EPERM.
    pub fn peek_kernel(&self, name: &str, port: u32) -> io::Result<u32> {
        let value = self.kernel_verb("peek", format!("{name} {port}").as_bytes())?;
        value.parse().map_err(|_| Errno::PROTO.into())
    }

    fn kernel_verb(&self, verb: &str, argument: &[u8]) -> io::Result<String> {
        self.json(&Request::Kernels([verb.as_bytes(), b" ", argument].concat()))
    }

    fn text(&self, request: &Request) -> io::Result<Vec<u8>> {
        match self.control(request)? {
            Reply::Text(text) => Ok(text),
            _ => Err(Errno::PROTO.into()),
        }
    }

    fn json(&self, request: &Request) -> io::Result<String> {
        String::from_utf8(self.text(request)?).map_err(|_| Errno::PROTO.into())
    }
}
