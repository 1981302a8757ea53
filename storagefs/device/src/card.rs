//! The card of a device: what is changed in it while it works.
//!
//! It is there from the start, with the kernels that come with it; no thread of it runs, and nothing is loaded, before
//! a slot is used first. What commands do with it are `packet` and `virt`; its life cycle (load, activate, deactivate,
//! unload) is administration, which the control plane asks for on behalf of those that govern the device.

use std::path::Path;
use std::sync::Arc;

use weldfs_ciscops::Errno;
use weldfs_fpga::card::Card;
use weldfs_fpga::error::CardError;
use weldfs_fpga::manifest::Kind;
use weldfs_fpga::package::Package;

use super::Device;

impl Device {
    /// The card: its slots and kernels.
    pub fn card(&self) -> &Arc<Card> {
        &self.core.card
    }

    /// Does what `request` says with the kernels of the card: `load PATH`, `unload NAME`, `activate NAME`,
    /// `deactivate NAME`, `prefer NAME BACKEND`, `peek NAME PORT`, `try PATH`. Whoever calls has seen to it that the
    /// asker governs the device. The answer is the name of what was loaded, the value of a port, or empty; of `try`,
    /// which loads nothing, a sentence that says why the package cannot be loaded, or nothing where it can.
    ///
    /// # Errors
    /// EINVAL: another request, or no package; ENOENT: no such kernel, back-end, file or port; EEXIST: the name or id
    /// is another's; EBUSY: the kernel is in use, active, or (`peek`) computes right now; EPERM: it belongs to the
    /// card; ENOSPC: no slot is large enough.
    pub fn kernels(&self, request: &[u8]) -> Result<String, Errno> {
        let card = self.card();
        let text = std::str::from_utf8(request).map_err(|_| Errno::INVAL)?;
        let (verb, rest) = text.split_once(' ').ok_or(Errno::INVAL)?;
        let errno = |e: CardError| {
            // A name or a path is whatever was asked with: its line breaks are no lines of the log.
            tracing::warn!("kernel {verb} {}: {}", rest.escape_debug(), e.to_string().escape_debug());
            e.errno()
        };
        let nothing = |done: Result<(), CardError>| done.map(|()| String::new()).map_err(errno);
        match verb {
            "load" | "try" if !Path::new(rest).is_absolute() => Err(Errno::INVAL),
            "try" => {
                let package = Package::open(Path::new(rest)).map_err(CardError::from);
                let tried = package.and_then(|package| card.could_load(package));
                Ok(tried.err().map_or_else(String::new, |e| e.to_string()))
            }
            "load" => {
                let path = Path::new(rest);
                let package = Package::open(path).map_err(|e| errno(e.into()))?;
                let name = package.manifest().name.clone();
                card.load(package).map_err(errno)?;
                tracing::info!("kernel {name} is loaded from {}", rest.escape_debug());
                Ok(name)
            }
            "unload" => nothing(card.unload(rest)),
            "activate" => nothing(card.activate(rest)),
            "deactivate" => nothing(card.deactivate(rest)),
            "prefer" => {
                let (name, kind) = rest.split_once(' ').ok_or(Errno::INVAL)?;
                nothing(card.prefer(name, Kind::find(kind).ok_or(Errno::NOENT)?))
            }
            "peek" => {
                let (name, port) = rest.split_once(' ').ok_or(Errno::INVAL)?;
                let port: u32 = port.parse().map_err(|_| Errno::INVAL)?;
                let holds = |s: &weldfs_fpga::status::SlotStatus| s.kernel.as_deref() == Some(name);
                let mut busy = None;
                for slot in card.status().slots.iter().filter(|s| holds(s)) {
                    match card.peek(slot.slot, port) {
                        Ok(Some(value)) => return Ok(value.to_string()),
                        Ok(None) => {}
                        Err(error) => busy = Some(error.errno()),
                    }
                }
                Err(busy.unwrap_or(Errno::NOENT))
            }
            _ => Err(Errno::INVAL),
        }
    }
}
